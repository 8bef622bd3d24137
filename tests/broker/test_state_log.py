"""A coordinator's partition: batches are read back in the log's order, with what they are part of and how it ended."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidelog.broker import state_log
from tidelog.broker.group_coordination import GROUP_RECORDS
from tidelog.broker.state_log import PartitionStateLog
from tidelog.clock import SystemClock
from tidelog.config.topic import TopicConfig
from tidelog.coordinators.decision import LoadedBatch, StoredRecord, Transaction
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.control import Marker, MarkerType
from tidelog.records.header import NO_SEQUENCE, peek
from tidelog.records.record import Record
from tidelog.replication.group_commit import GroupCommit
from tidelog.replication.partition import Partition
from tidelog.replication.role import Role
from tidelog.storage.store import LogStore
from tidelog.storage.verification import TRUSTED
from tidelog.testing.forgetful_fs import ForgetfulFilesystem
from tidelog.types import TopicPartition, new_topic_id
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NOW_MS = 1_700_000_000_000
PLACE = TopicPartition("__consumer_offsets", 3)
MINE = Transaction(7, 2, TRUSTED)
NAMED = Transaction(7, 2)


def commit(offset: int) -> StoredRecord:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW_MS)
    return StoredRecord(OffsetCommitKey(group="g", topic="t", partition=0), 1, value, 3)


def plain(*records: StoredRecord) -> LoadedBatch:
    return LoadedBatch([(record.key, record.value) for record in records])


def on_partition(story: Callable[[Partition, PartitionStateLog], Awaitable[None]], codec: Codec = Codec.NONE) -> None:
    async def main() -> None:
        config = replace(TopicConfig(), tidelog_fsync_before_ack="false")
        store = LogStore([Path("/data")], ForgetfulFilesystem(), SystemClock(), open_files_max=100, recovery_threads=1)
        store.lock()
        store.open(lambda _topic: config)
        with ThreadPoolExecutor(1) as executor:
            log = store.create(PLACE, new_topic_id(), config)
            partition = Partition(log, 0, GroupCommit(executor, 1), (0,))
            assert partition.become(Role(PLACE, log.topic_id, 0, 0, (0,), (0,), 0), 0)
            await story(partition, PartitionStateLog(partition, GROUP_RECORDS, codec))

    asyncio.run(main())


def mark(partition: Partition, kind: MarkerType) -> None:
    partition.append_marker(Marker(kind, 5), 7, 2, NOW_MS, transaction_version=1)


async def read(log: PartitionStateLog) -> list[LoadedBatch]:
    return [batch async for portion in log.read() for batch in portion]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("bytes_per_read", [1, 1 << 20])
def test_what_was_stored_is_read_with_what_became_of_it(
    codec: Codec, bytes_per_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "LOAD_BYTES_PER_READ", bytes_per_read)

    async def story(partition: Partition, log: PartitionStateLog) -> None:
        assert log.append([commit(1), commit(2)], NOW_MS) == 1
        assert log.append([commit(3)], NOW_MS, MINE) == 2
        mark(partition, MarkerType.COMMIT)
        assert log.marked(MINE, committed=True) == 3
        assert log.append([commit(4)], NOW_MS, MINE) == 4
        assert log.append([commit(5)], NOW_MS) == 5
        mark(partition, MarkerType.ABORT)
        assert await read(log) == [
            plain(commit(1), commit(2)),
            plain(commit(3))._replace(transaction=NAMED),
            LoadedBatch((), NAMED, committed=True),
            plain(commit(4))._replace(transaction=NAMED),
            plain(commit(5)),
            LoadedBatch((), NAMED, committed=False),
        ]
        assert log.end_offset == 7

    on_partition(story, codec)


def test_a_marker_that_comes_during_the_reading_is_read() -> None:
    async def story(partition: Partition, log: PartitionStateLog) -> None:
        log.append([commit(3)], NOW_MS, MINE)
        found: list[LoadedBatch] = []
        async for portion in log.read():
            if not found:
                mark(partition, MarkerType.COMMIT)
            found += portion
        assert [batch.committed for batch in found] == [None, True]

    on_partition(story)


def test_a_transaction_that_nobody_vouches_for_is_refused() -> None:
    async def story(partition: Partition, log: PartitionStateLog) -> None:
        producers = partition.log.producers

        def refused(transaction: Transaction) -> ErrorCode:
            with pytest.raises(BrokerError) as refusal:
                log.append([commit(1)], NOW_MS, transaction)
            return refusal.value.code

        assert refused(NAMED) is ErrorCode.INVALID_TXN_STATE
        guard = producers.verification(7, 2, NO_SEQUENCE, NOW_MS)
        mark(partition, MarkerType.ABORT)
        assert refused(NAMED._replace(guard=guard)) is ErrorCode.INVALID_TXN_STATE, "it was ended meanwhile"
        guard = producers.verification(7, 2, NO_SEQUENCE, NOW_MS)
        log.append([commit(1)], NOW_MS, NAMED._replace(guard=guard))
        log.append([commit(2)], NOW_MS, NAMED)
        assert refused(Transaction(7, 1, TRUSTED)) is ErrorCode.INVALID_PRODUCER_EPOCH

    on_partition(story)


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0", b""), (b"\0\1nonsense", b""), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3x")]
)
def test_what_makes_no_sense_is_not_passed_over(key: bytes, value: bytes) -> None:
    async def story(partition: Partition, log: PartitionStateLog) -> None:
        batch = memoryview(build_batch([Record(0, NOW_MS, key, value)]))
        partition.append(batch, peek(batch), NOW_MS, all_replicas=True)
        with pytest.raises(BrokerError) as refusal:
            await read(log)
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    on_partition(story)
