"""What is acknowledged or readable survives a crash: partitions and group commit on a file system that forgets."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.clock import SystemClock
from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.header import peek
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.replication.group_commit import GroupCommit
from tidelog.replication.partition import Partition
from tidelog.replication.role import Role
from tidelog.replication.waiting import FetchWait, ProduceWait
from tidelog.storage.store import LogStore
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem
from tidelog.types import TopicPartition, new_topic_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
PATIENCE_S = 30.0


def lead(partition: Partition, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
    role = Role(ORDERS, partition.log.topic_id, 0, leader_epoch, isr, replicas, partition.partition_epoch + 1)
    assert partition.become(role, 0)


class World:
    """One partition on a disk that forgets. `crash` ends the process and the power; what is left is opened again."""

    def __init__(self, fs: ForgetfulFilesystem, config: TopicConfig, threads: int = 1) -> None:
        self.fs = fs
        self.config = config
        self.executor = ThreadPoolExecutor(threads)
        self.commit = GroupCommit(self.executor, threads)
        self.partition = self._open()

    def _open(self) -> Partition:
        store = LogStore([Path("/data")], self.fs, SystemClock(), open_files_max=100, recovery_threads=1)
        store.lock()
        store.open(lambda _topic: self.config)
        log = store.logs.get(ORDERS) or store.create(ORDERS, new_topic_id(), self.config)
        partition = Partition(log, 0, self.commit, (0,))
        lead(partition, 0, (0,), (0,))
        return partition

    def crash(self, forget: Forget = Forget.EVERYTHING) -> None:
        self.fs.crash(forget)
        self.partition = self._open()

    def append(self, *values: bytes) -> int:
        batch = memoryview(build_batch([Record(at, NOW_MS, None, value) for at, value in enumerate(values)]))
        return self.partition.append(batch, peek(batch), NOW_MS, all_replicas=True).last_offset

    async def append_safely(self, *values: bytes) -> int:
        last_offset = self.append(*values)
        await self.safe(last_offset)
        return last_offset

    async def safe(self, last_offset: int) -> None:
        done = asyncio.get_running_loop().create_future()
        wait = ProduceWait(lambda: done.set_result(None))
        if self.partition.await_safe(last_offset, wait):
            await asyncio.wait_for(done, PATIENCE_S)
            for error in wait.failures.values():
                raise error

    def readable(self) -> list[bytes | None]:
        values: list[bytes | None] = []
        offset = self.partition.log.log_start_offset
        while found := self.partition.read(offset, 1 << 20, min_one=True, committed_only=False):
            for batch in iter_batches(found.slice.read()):
                values += [record.value for record in iter_records(batch.data) if record.offset >= offset]
                offset = batch.header.next_offset
        return values


def in_world(
    story: Callable[[World], Awaitable[T]], config: TopicConfig | None = None, fs: ForgetfulFilesystem | None = None
) -> T:
    async def main() -> T:
        world = World(fs or ForgetfulFilesystem(), config or TopicConfig())
        try:
            return await story(world)
        finally:
            world.executor.shutdown()

    return asyncio.run(main())


def test_what_was_acknowledged_survives_a_crash_that_forgets_everything_unsynced() -> None:
    async def story(world: World) -> None:
        await world.append_safely(b"one", b"two")
        await world.append_safely(b"three")
        world.crash()
        assert world.readable() == [b"one", b"two", b"three"]

    in_world(story)


def test_what_could_be_lost_can_be_neither_read_nor_counted() -> None:
    async def story(world: World) -> None:
        await world.append_safely(b"safe")
        world.append(b"not yet")
        assert world.readable() == [b"safe"]
        assert world.partition.high_watermark == 1
        world.crash()
        assert world.readable() == [b"safe"]

    in_world(story)


def test_without_fsync_before_ack_records_are_readable_at_once_and_a_crash_may_take_them() -> None:
    async def story(world: World) -> None:
        world.append(b"one")
        assert world.readable() == [b"one"]
        world.crash()
        assert world.readable() == []

    in_world(story, TopicConfig(tidelog_fsync_before_ack="false"))


def test_one_sync_serves_all_that_arrived_meanwhile() -> None:
    async def story(world: World) -> int:
        last = [world.append(b"%d" % number) for number in range(100)][-1]
        await world.safe(last)
        return world.fs.calls["sync"]

    assert in_world(story) < 20


def test_turning_durability_off_lets_go_what_waits_for_it() -> None:
    async def story(world: World) -> None:
        world.append(b"waiting")
        assert world.readable() == []
        world.partition.configure(replace(world.config, tidelog_fsync_before_ack="false"))
        assert world.readable() == [b"waiting"]

    in_world(story)


def test_recovered_records_are_not_shown_before_they_are_synced() -> None:
    """A killed process leaves its writes in the page cache: there, but not yet safe from a power failure."""

    async def story(world: World) -> None:
        await world.append_safely(b"safe")
        world.append(b"in the page cache")
        world.crash(Forget.NOTHING)
        assert world.partition.log.log_end_offset == 2
        await world.safe(1)
        world.crash()
        assert world.readable() == [b"safe", b"in the page cache"]

    in_world(story)


def test_a_sync_that_fails_promises_nothing_any_more() -> None:
    fs = ForgetfulFilesystem()

    async def story(world: World) -> None:
        await world.append_safely(b"safe")
        fs.fail("sync", errno.EIO)
        with pytest.raises(BrokerError) as refusal:
            await world.append_safely(b"lost")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(BrokerError) as refusal:
            world.append(b"later")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        found = world.partition.read(0, 1 << 20, min_one=True, committed_only=False)
        assert found is not None
        assert [batch.header.next_offset for batch in iter_batches(found.slice.read())] == [1]

    in_world(story, fs=fs)


def test_a_full_disk_refuses_and_recovers() -> None:
    fs = ForgetfulFilesystem()

    async def story(world: World) -> None:
        await world.append_safely(b"one")
        fs.fail("write", errno.ENOSPC)
        with pytest.raises(BrokerError) as refusal:
            world.append(b"two")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await world.append_safely(b"three")
        world.crash()
        assert world.readable() == [b"one", b"three"]

    in_world(story, fs=fs)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(st.sampled_from(["append", "safely", "crash", "tear"]), max_size=14),
)
def test_acknowledged_records_survive_any_crash_in_order_and_once(seed: int, steps: list[str]) -> None:
    async def story(world: World) -> None:
        acknowledged: list[bytes | None] = []
        attempted: list[bytes | None] = []
        for number, step in enumerate(steps):
            value = b"%d" % number
            if step in {"append", "safely"}:
                attempted.append(value)
                last = world.append(value)
                if step == "safely":
                    await world.safe(last)
                    acknowledged = list(attempted)
                continue
            # Whatever was readable at the moment of the crash counts as seen by somebody.
            seen = world.readable()
            world.crash(Forget.EVERYTHING if step == "crash" else Forget.SOMETHING)
            await world.safe(world.partition.log.log_end_offset - 1)
            attempted = world.readable()
            assert attempted[: len(acknowledged)] == acknowledged
            assert attempted[: len(seen)] == seen
            acknowledged = list(attempted)

    in_world(story, fs=ForgetfulFilesystem(seed))


def test_a_waiting_fetch_wakes_when_enough_bytes_are_visible_and_not_before() -> None:
    async def story(world: World) -> None:
        woken: list[str] = []
        one_byte = FetchWait(1, lambda: woken.append("one byte"))
        many = FetchWait(10_000, lambda: woken.append("many"))
        world.partition.watch(one_byte)
        world.partition.watch(many)
        last = world.append(b"x")
        assert woken == []
        await world.safe(last)
        assert woken == ["one byte"]
        await world.append_safely(b"y" * 10_000)
        assert woken == ["one byte", "many"]

    in_world(story)


def test_a_deleted_partition_tells_those_who_wait() -> None:
    async def story(world: World) -> None:
        wait = ProduceWait(lambda: None)
        world.partition.await_safe(world.append(b"x"), wait)
        world.partition.gone(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted"))
        assert wait.failures[ORDERS].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(BrokerError) as refusal:
            world.append(b"y")
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_world(story)


@pytest.mark.parametrize(("claimed", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_leader_epochs_are_checked(claimed: int, code: ErrorCode) -> None:
    async def story(world: World) -> None:
        lead(world.partition, 5, (0,), (0,))
        world.partition.check_leader(5)
        world.partition.check_leader(-1)
        with pytest.raises(BrokerError) as refusal:
            world.partition.check_leader(claimed)
        assert refusal.value.code is code

    in_world(story)


def test_too_few_in_sync_replicas_refuse_before_anything_is_written() -> None:
    async def story(world: World) -> None:
        lead(world.partition, 0, (0, 1, 2), (0,))
        with pytest.raises(BrokerError) as refusal:
            world.append(b"x")
        assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert world.partition.log.log_end_offset == 0

    in_world(story, TopicConfig(min_insync_replicas=2))


def test_no_more_replicas_can_be_needed_in_sync_than_there_are() -> None:
    async def story(world: World) -> None:
        assert await world.append_safely(b"x") == 0

    in_world(story, TopicConfig(min_insync_replicas=2))


@pytest.mark.parametrize(
    ("before", "start"), [(0, 0), (2, 2), (3, 3), (-1, 3)], ids=["nothing", "some", "all", "up to the high watermark"]
)
def test_deleting_records_moves_the_start(before: int, start: int) -> None:
    async def story(world: World) -> None:
        await world.append_safely(b"a", b"b", b"c")
        assert world.partition.delete_records(before) == start

    in_world(story)


@pytest.mark.parametrize("before", [4, -2])
def test_records_beyond_the_high_watermark_cannot_be_deleted(before: int) -> None:
    async def story(world: World) -> None:
        await world.append_safely(b"a", b"b", b"c")
        world.append(b"not safe yet")
        with pytest.raises(BrokerError) as refusal:
            world.partition.delete_records(before)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    in_world(story)


def test_records_of_a_compacted_topic_cannot_be_deleted() -> None:
    async def story(world: World) -> None:
        with pytest.raises(BrokerError) as refusal:
            world.partition.delete_records(-1)
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION

    in_world(story, TopicConfig(cleanup_policy=frozenset({"compact"})))
