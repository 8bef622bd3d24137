"""A partition of an internal topic, as a coordinator writes and reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.header import peek
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.replication.waiting import ProduceWait
from tidelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.coordinators.decision import StoredRecord
    from tidelog.coordinators.stored import RecordFormat
    from tidelog.records.compression import Codec
    from tidelog.replication.partition import Partition
    from tidelog.wire.declare import Message

LOAD_BYTES_PER_READ = 1 << 20


class PartitionStateLog:
    """Fits `coordinators.runtime.StateLog`."""

    def __init__(self, partition: Partition, record_format: RecordFormat, codec: Codec) -> None:
        self._partition = partition
        self._format = record_format
        self._codec = codec

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    def append(self, records: Sequence[StoredRecord], now_ms: int) -> int:
        encoded = (self._format.encode(record) for record in records)
        batch = memoryview(
            build_batch([Record(at, now_ms, key, value) for at, (key, value) in enumerate(encoded)], codec=self._codec)
        )
        return self._partition.append(batch, peek(batch), now_ms, all_replicas=True).last_offset

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        wait = ProduceWait(lambda: then(next(iter(wait.failures.values()), None)))
        try:
            parked = self._partition.await_safe(offset, wait)
        except BrokerError as error:
            then(error)
            return
        if not parked:
            then(None)

    async def read(self) -> AsyncIterator[Sequence[tuple[Message, Message | None]]]:
        log = self._partition.log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            found = log.read(offset, LOAD_BYTES_PER_READ, end, min_one=True)
            if found is None:
                return
            portion: list[tuple[Message, Message | None]] = []
            for batch in iter_batches(found.slice.read()):
                if not batch.header.control:
                    portion += self._decode(batch.data)
                offset = batch.header.next_offset
            yield portion
            await asyncio.sleep(0)

    def _decode(self, batch: memoryview) -> list[tuple[Message, Message | None]]:
        decoded = []
        for record in iter_records(batch):
            if record.key is None:
                continue
            try:
                entry = self._format.decode(record.key, record.value)
            except DecodeError as error:
                raise BrokerError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self._partition.topic_partition} holds a record at offset {record.offset} that makes no sense: "
                    f"{error}",
                ) from error
            if entry is not None:
                decoded.append(entry)
        return decoded
