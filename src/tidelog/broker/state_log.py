"""A partition of an internal topic, as a coordinator writes and reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.coordinators.decision import LoadedBatch, Transaction
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import NO_PRODUCER_EPOCH, build_batch
from tidelog.records.control import read_marker
from tidelog.records.header import peek
from tidelog.records.record import CorruptRecords, Record, iter_batches, iter_records
from tidelog.replication.waiting import ProduceWait
from tidelog.types import NO_PRODUCER_ID, ProducerId
from tidelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.coordinators.decision import StoredRecord
    from tidelog.coordinators.stored import RecordFormat
    from tidelog.records.compression import Codec
    from tidelog.records.header import BatchHeader
    from tidelog.replication.partition import Partition
    from tidelog.wire.declare import Message

LOAD_BYTES_PER_READ = 1 << 20

_NO_TRANSACTION = Transaction(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class PartitionStateLog:
    """Fits `coordinators.runtime.StateLog`."""

    def __init__(self, partition: Partition, record_format: RecordFormat, codec: Codec) -> None:
        self._partition = partition
        self._format = record_format
        self._codec = codec

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    def append(self, records: Sequence[StoredRecord], now_ms: int, transaction: Transaction | None = None) -> int:
        encoded = (self._format.encode(record) for record in records)
        producer_id, producer_epoch, guard = transaction or _NO_TRANSACTION
        batch = memoryview(
            build_batch(
                [Record(at, now_ms, key, value) for at, (key, value) in enumerate(encoded)],
                codec=self._codec,
                producer_id=ProducerId(producer_id),
                producer_epoch=producer_epoch,
                transactional=transaction is not None,
            )
        )
        return self._partition.append(batch, peek(batch), now_ms, all_replicas=True, guard=guard).last_offset

    def marked(self, transaction: Transaction, *, committed: bool) -> int:  # noqa: ARG002 - only the place is asked for
        return self._partition.log.log_end_offset - 1

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        wait = ProduceWait(lambda: then(next(iter(wait.failures.values()), None)))
        try:
            parked = self._partition.await_safe(offset, wait)
        except BrokerError as error:
            then(error)
            return
        if not parked:
            then(None)

    async def read(self) -> AsyncIterator[Sequence[LoadedBatch]]:
        log = self._partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:  # somebody may append markers meanwhile
            found = log.read(offset, LOAD_BYTES_PER_READ, log.log_end_offset, min_one=True)
            if found is None:
                return
            portion: list[LoadedBatch] = []
            for batch in iter_batches(found.slice.read()):
                portion += self._load(batch.data, batch.header)
                offset = batch.header.next_offset
            yield portion
            await asyncio.sleep(0)

    def _load(self, batch: memoryview, header: BatchHeader) -> list[LoadedBatch]:
        """None of it if it is a marker of a kind that is not known."""
        transaction = None
        if header.transactional:
            transaction = Transaction(header.producer_id, header.producer_epoch)
        try:
            if not header.control:
                return [LoadedBatch(self._decode(batch), transaction)]
            marker = read_marker(batch)
        except (DecodeError, CorruptRecords) as error:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._partition.topic_partition} holds a batch at offset {header.base_offset} that makes no sense: "
                f"{error}",
            ) from error
        return [] if marker is None else [LoadedBatch((), transaction, marker.committed)]

    def _decode(self, batch: memoryview) -> list[tuple[Message, Message | None]]:
        decoded = []
        for record in iter_records(batch):
            if record.key is not None:
                entry = self._format.decode(record.key, record.value)
                if entry is not None:
                    decoded.append(entry)
        return decoded
