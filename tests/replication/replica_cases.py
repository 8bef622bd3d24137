"""What the tests of this room share: brokers with replicas on disks that forget, and what they hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.config.topic import TopicConfig
from tidelog.handlers.handler import Services
from tidelog.records.build import build_batch
from tidelog.records.header import peek
from tidelog.records.record import Record, iter_batches
from tidelog.replication.group_commit import GroupCommit
from tidelog.replication.isr import LagBounds
from tidelog.replication.replicas import Replicas
from tidelog.replication.role import Role
from tidelog.replication.waiting import ProduceWait, nobody
from tidelog.storage.store import LogStore
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem
from tidelog.types import TopicId, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tidelog.replication.partition import Partition
    from tidelog.storage.log import Log

NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
ORDERS_ID = TopicId(bytes(range(16)))
A, B, C = 1, 2, 3
TIME_MAX_MS = 1000
BOUNDS = LagBounds(TIME_MAX_MS)
ALL = 2**62


@dataclass
class ManualClock:
    passed_ms: int = 0

    def now_ms(self) -> int:
        return NOW_MS + self.passed_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000


def role(
    leader: int,
    leader_epoch: int,
    isr: tuple[int, ...] = (A, B, C),
    *,
    replicas: tuple[int, ...] = (A, B, C),
    partition_epoch: int = 0,
    place: TopicPartition = ORDERS,
    observers: tuple[int, ...] = (),
) -> Role:
    return Role(place, ORDERS_ID, leader, leader_epoch, isr, replicas, partition_epoch, observers)


class Proposals:
    """Remembers what was proposed."""

    def __init__(self) -> None:
        self.made: list[tuple[TopicPartition, tuple[int, ...]]] = []

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        self.made.append((partition.topic_partition, isr))

    @property
    def latest(self) -> tuple[int, ...] | None:
        return self.made[-1][1] if self.made else None


class Node:
    """One broker's replicas. `crash` ends the process; what is left is opened again, without roles."""

    def __init__(
        self,
        broker_id: int,
        clock: ManualClock,
        config: TopicConfig | None = None,
        fs: ForgetfulFilesystem | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.config = config or TopicConfig()
        self.fs = fs or ForgetfulFilesystem(broker_id)
        self.executor = executor or ThreadPoolExecutor(1)
        self.proposals = Proposals()
        self._open()

    def _open(self) -> None:
        self.store = LogStore([Path("/data")], self.fs, self.clock, open_files_max=100, recovery_threads=1)
        self.store.lock()
        self.store.open(lambda _topic: self.config)
        commit = GroupCommit(self.executor, 1)
        self.replicas = Replicas(self.store, self.broker_id, commit, clock=self.clock, bounds=BOUNDS)
        self.replicas.proposals = self.proposals

    def crash(self, forget: Forget = Forget.NOTHING) -> None:
        self.fs.crash(forget)
        self._open()

    def checkpoint(self) -> None:
        self.store.write_checkpoints(self.replicas.high_watermarks())

    def take(self, new: Role) -> bool:
        return self.replicas.take_role(new, self.config)

    def partition(self, place: TopicPartition = ORDERS) -> Partition:
        return self.replicas.get(*place)

    @property
    def log(self) -> Log:
        return self.partition().log

    def append(self, *values: bytes, all_replicas: bool = True, place: TopicPartition = ORDERS) -> int:
        batch = memoryview(build_batch([Record(at, NOW_MS, None, value) for at, value in enumerate(values)]))
        return self.partition(place).append(batch, peek(batch), NOW_MS, all_replicas=all_replicas).last_offset

    def await_safe(self, offset: int, *, all_replicas: bool = True) -> ProduceWait:
        wait = ProduceWait(nobody)
        self.partition().await_safe(offset, wait, all_replicas=all_replicas)
        return wait


def copy(follower: Node, leader: Node, place: TopicPartition = ORDERS, *, max_bytes: int = ALL) -> bool:
    """One fetch of a follower from its leader, as the two sides do it. False if there was nothing more."""
    here, there = follower.partition(place), leader.partition(place)
    offset = here.log.log_end_offset
    epoch = here.log.last_leader_epoch
    if epoch >= 0 and (diverging := there.divergence(epoch, offset)):
        here.cut_back(diverging)
        return True
    found = there.read_as_replica(offset, max_bytes, min_one=True)
    there.fetched(follower.broker_id, offset, leader.replicas.now_ms())
    records = found.slice.read() if found else b""
    here.followed(records, there.high_watermark, there.log.log_start_offset, leader.clock.now_ms())
    return bool(records)


def catch_up(follower: Node, leader: Node, place: TopicPartition = ORDERS) -> None:
    while copy(follower, leader, place):
        pass


def services(**given: Any) -> Services:
    """What a handler gets, with nothing where it must not look."""
    nothing = {field.name: None for field in fields(Services) if field.default is field.default_factory is MISSING}
    return Services(**{**nothing, **given})


def content(log: Log, upto: int = ALL) -> bytes:
    """All batches of a log, byte for byte."""
    data, offset = b"", log.log_start_offset
    while found := log.read(offset, ALL, min(upto, log.log_end_offset), min_one=True):
        data += found.slice.read()
        offset = found.next_offset
    return data


def batch_epochs(log: Log) -> list[tuple[int, int]]:
    """Base offset and leader epoch of each batch."""
    return [(header.base_offset, header.leader_epoch) for header, _ in iter_batches(content(log))]
