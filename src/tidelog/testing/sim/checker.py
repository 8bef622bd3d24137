"""Looks at every replica after every step of the simulation, and at every change of ZooKeeper's tree.

What must hold, always: one leader per epoch; no offset given away twice in an epoch; logs equal up to their high
watermarks; whoever comes to lead has everything that was promised; what is promised is never cut off; whoever joins
the in-sync replicas has everything that was promised; what producers were told and consumers read was promised.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

from tidelog.records.record import iter_batches
from tidelog.testing.sim.ledger import BatchId, Mirror, PartitionLedger, Violation
from tidelog.types import TopicPartition
from tidelog.znodes import nodes, paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tidelog.replication.partition import Partition
    from tidelog.storage.log import Log
    from tidelog.testing.sim.world import World
    from tidelog.znodes.tree import Changes

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_READ_BYTES = 1 << 20
NOBODY = -1


class Replica(Protocol):
    """A broker that runs: its number, the partitions it has a role in, and the logs it has."""

    @property
    def broker_id(self) -> int: ...

    @property
    def partitions(self) -> Iterable[Partition]: ...

    @property
    def logs(self) -> Collection[TopicPartition]: ...


class _Seen(NamedTuple):
    end_offset: int
    start_offset: int
    high_watermark: int
    leader: int
    leader_epoch: int


class Checker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.ledgers: dict[TopicPartition, PartitionLedger] = {}
        self.mirrors: dict[tuple[int, TopicPartition], Mirror] = {}
        self.states: dict[TopicPartition, nodes.PartitionState] = {}
        self.assignments: dict[str, nodes.TopicAssignment] = {}
        self.unclean: set[str] = set()
        """Topics that may lose what was promised: their leaders may be elected uncleanly."""
        self._seen: dict[tuple[int, TopicPartition], _Seen] = {}
        self._held: dict[int, int] = {}
        self._reigns: set[tuple[TopicPartition, int]] = set()
        self._controller_epoch = 0
        self.violation: Violation | None = None

    def ledger(self, topic_partition: TopicPartition) -> PartitionLedger:
        found = self.ledgers.get(topic_partition)
        if found is None:
            found = self.ledgers[topic_partition] = PartitionLedger(topic_partition)
        return found

    # -- brokers ------------------------------------------------------------------------------------------------

    def look_at(self, replica: Replica) -> None:
        """Called after each step that `replica` took."""
        broker_id = replica.broker_id
        count = len(replica.logs)
        if count < self._held.get(broker_id, 0):
            self._forget_deleted(replica)
        self._held[broker_id] = count
        for partition in replica.partitions:
            log = partition.log
            seen = _Seen(
                log.log_end_offset,
                log.log_start_offset,
                partition.high_watermark,
                partition.leader,
                partition.leader_epoch,
            )
            key = (broker_id, partition.topic_partition)
            before = self._seen.get(key)
            if seen != before:
                self._seen[key] = seen
                self._changed(broker_id, partition, before, seen)

    def _forget_deleted(self, replica: Replica) -> None:
        """A partition was moved away, perhaps while the broker was: what comes back one day is another log."""
        for key in [each for each in self.mirrors if each[0] == replica.broker_id]:
            if key[1] not in replica.logs:
                self._world.note(replica.broker_id, f"{key[1]} is deleted")
                del self.mirrors[key]
                self._seen.pop(key, None)

    def ended(self, broker_id: int) -> None:
        """The broker's process is gone; its logs are not."""
        self._held.pop(broker_id, None)

    def restarted(self, broker_id: int, logs: Iterable[Log], *, lossy: bool) -> None:
        """A broker has opened its logs. After a lossy stop they may hold less than before; else exactly as much."""
        for key in [each for each in self._seen if each[0] == broker_id]:
            del self._seen[key]
        if lossy:
            for key in [each for each in self.mirrors if each[0] == broker_id]:
                self.mirrors[key] = Mirror()
        for log in logs:
            self._refresh(broker_id, log, may_cut=lossy)

    def _changed(self, broker_id: int, partition: Partition, before: _Seen | None, seen: _Seen) -> None:
        ledger = self.ledger(partition.topic_partition)
        self._world.note(broker_id, f"{partition.topic_partition} {tuple(seen)}")
        mirror = self._refresh(broker_id, partition.log, may_cut=False)
        leads = seen.leader == broker_id
        if leads:
            self._check_leader(broker_id, ledger, mirror, seen.leader_epoch)
        high_watermark = seen.high_watermark
        if high_watermark > seen.end_offset:
            self._broken(ledger, f"broker {broker_id} has a high watermark beyond its log: {seen}")
        same_reign = before and leads and before[3:] == seen[3:]
        if before and same_reign and high_watermark < before.high_watermark:
            self._broken(ledger, f"the high watermark of leader {broker_id} fell: {before} {seen}")
        if leads and high_watermark > ledger.end_offset:
            ledger.promise(broker_id, seen.leader_epoch, mirror.between(ledger.end_offset, high_watermark))
        if not before or high_watermark != before.high_watermark:
            if high_watermark > ledger.end_offset:
                self._broken(ledger, f"broker {broker_id} has a high watermark beyond what was promised: {seen}")
            missing = ledger.missing_in(mirror, high_watermark)
            if missing and partition.topic_partition.topic not in self.unclean:
                self._broken(ledger, f"broker {broker_id} differs below its high watermark: {missing}")

    def _check_leader(self, broker_id: int, ledger: PartitionLedger, mirror: Mirror, epoch: int) -> None:
        ledger.leads(broker_id, epoch)
        if (ledger.topic_partition, epoch) in self._reigns:
            return
        self._reigns.add((ledger.topic_partition, epoch))
        missing = ledger.missing_in(mirror, ledger.promised_before(epoch))
        if missing and ledger.topic_partition.topic not in self.unclean:
            self._broken(ledger, f"broker {broker_id} leads in epoch {epoch}, but {missing}")

    def _refresh(self, broker_id: int, log: Log, *, may_cut: bool) -> Mirror:
        """Brings the mirror up to what the log holds now."""
        topic_partition = log.topic_partition
        ledger = self.ledger(topic_partition)
        mirror = self.mirrors.setdefault((broker_id, topic_partition), Mirror())
        gone = mirror.cut(log.log_end_offset)
        start = max(mirror.batches[-1].base_offset if mirror.batches else 0, log.log_start_offset)
        found = _batches(log, start)
        if mirror.batches and (not found or found[0] != mirror.batches[-1]):
            # Cut and written anew within one step: what is left of the old must be found by looking at all of it.
            found = _batches(log, log.log_start_offset)
            kept = 0
            while kept < min(len(found), len(mirror.batches)) and found[kept] == mirror.batches[kept]:
                kept += 1
            gone = mirror.batches[kept:] + gone
            del mirror.batches[kept:]
            found = found[kept:]
        elif mirror.batches:
            found = found[1:]
        lost = next((batch for batch in gone if ledger.is_promised(batch)), None)
        forgivable = may_cut or topic_partition.topic in self.unclean
        if lost and not forgivable and log.log_start_offset <= lost.base_offset:
            self._broken(ledger, f"broker {broker_id} has cut off {lost}, which was promised")
        for batch in found:
            ledger.wrote(broker_id, batch, mirror.batches[-1] if mirror.batches else None)
            mirror.batches.append(batch)
        mirror.start_offset, mirror.end_offset = log.log_start_offset, log.log_end_offset
        return mirror

    # -- ZooKeeper ----------------------------------------------------------------------------------------------

    def tree_changed(self, changes: Changes) -> None:
        for path, node in changes.items():
            if node is None:
                continue
            if path == paths.CONTROLLER_EPOCH:
                epoch = nodes.decode_integer(path, node.data)
                if epoch < self._controller_epoch:
                    self.fail(f"the controller epoch fell from {self._controller_epoch} to {epoch}")
                self._controller_epoch = epoch
            elif match := _TOPIC.fullmatch(path):
                self.assignments[match[1]] = nodes.TopicAssignment.decode(path, node.data)
            elif match := _STATE.fullmatch(path):
                topic_partition = TopicPartition(match[1], int(match[2]))
                self._state_changed(topic_partition, nodes.PartitionState.decode(path, node.data))

    def _state_changed(self, topic_partition: TopicPartition, state: nodes.PartitionState) -> None:
        ledger = self.ledger(topic_partition)
        self._world.note("zookeeper", f"{topic_partition} {state}")
        before = self.states.get(topic_partition)
        self.states[topic_partition] = state
        if state.leader != NOBODY and state.leader not in state.isr:
            self._broken(ledger, f"its leader is not in sync: {state}")
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch:
            self._broken(ledger, f"the leader epoch fell: {before} {state}")
        if state.leader not in {before.leader, NOBODY} and state.leader_epoch == before.leader_epoch:
            self._broken(ledger, f"another leader without another epoch: {before} {state}")
        if topic_partition.topic in self.unclean:
            return
        for joined in set(state.isr) - set(before.isr):
            missing = ledger.missing_in(self.mirrors.get((joined, topic_partition), Mirror()))
            if missing:
                self._broken(ledger, f"broker {joined} joins the in-sync replicas, but {missing}")

    # -- clients ------------------------------------------------------------------------------------------------

    def acknowledged(self, topic_partition: TopicPartition, base_offset: int, crc: int) -> None:
        """A producer was told that its batch is safe."""
        ledger = self.ledger(topic_partition)
        found = ledger.find(base_offset)
        if found is None or found.base_offset != base_offset or found.crc != crc:
            self._broken(ledger, f"a batch was acknowledged at {base_offset} (crc {crc:08x}), but there is {found}")

    def consumed(self, topic_partition: TopicPartition, batch: BatchId) -> None:
        """A consumer was given a batch."""
        ledger = self.ledger(topic_partition)
        if not ledger.is_promised(batch):
            self._broken(ledger, f"a consumer was given {batch}, but there is {ledger.find(batch.base_offset)}")

    def _broken(self, ledger: PartitionLedger, what: str) -> NoReturn:
        self.fail(f"{ledger.topic_partition}: {what}")

    def fail(self, what: str) -> NoReturn:
        """Kept, since what is raised inside a callback stays there."""
        self.violation = self.violation or Violation(what)
        raise self.violation


def _batches(log: Log, start: int) -> list[BatchId]:
    """The headers of what the log holds from the batch with `start` on."""
    found: list[BatchId] = []
    while start < log.log_end_offset:
        part = log.read(start, _READ_BYTES, log.log_end_offset, min_one=True)
        if part is None:
            break
        for header, _ in iter_batches(memoryview(part.slice.read())):
            found.append(BatchId.of(header))
        start = found[-1].next_offset
    return found
