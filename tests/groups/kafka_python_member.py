"""A group's member on kafka-python."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # type: ignore[import-untyped]
from kafka.errors import KafkaConnectionError, KafkaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from member import Options, Partition, Position, Reports

# Long enough for a rejoin to be over within one call: the library may forget one that takes several.
POLL_MS = 10_000
BATCH = 50
ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}


class Interrupted(BaseException):
    """The member is to leave while it waits for records: a wish, which nobody on the way may take for an error."""


class KafkaPython(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, options: Options, reports: Reports) -> None:
        self._reports = reports
        self._commits = options.commit == "sync"
        self._uncommitted: dict[Partition, int] = {}
        self._polling = False
        self._consumer = KafkaConsumer(**settings(options))
        self._consumer.subscribe(topics=options.topics, pattern=options.pattern, listener=self)

    def interrupt(self) -> None:
        if self._polling:
            raise Interrupted

    def turn(self) -> None:
        self._polling = True
        try:
            batches = self._consumer.poll(timeout_ms=POLL_MS, max_records=BATCH)
        except KafkaConnectionError:
            return  # the broker is away, and the library tells whoever polls just then
        finally:
            self._polling = False
        for records in batches.values():
            for record in records:
                self._reports.record(record.topic, record.partition, record.offset, record.value)
                self._uncommitted[record.topic, record.partition] = record.offset + 1
        self._commit()

    def close(self) -> None:
        self._consumer.close(autocommit=self._commits is False)

    def _commit(self) -> None:
        """What is refused while partitions move is tried again, until they are taken away."""
        if not self._commits or not self._uncommitted:
            return
        upto: list[Position] = [(*place, offset) for place, offset in self._uncommitted.items()]
        try:
            self._consumer.commit({TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for *at, offset in upto})
        except KafkaError as refusal:
            self._reports.refused(type(refusal).__name__, upto)
            return
        self._uncommitted.clear()
        self._reports.committed(upto)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._reports.gained(map(place_of, assigned))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._commit()
        self._forget(revoked)
        self._reports.gave_up(map(place_of, revoked))

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._forget(lost)
        self._reports.gave_up(map(place_of, lost), why="lost")

    def _forget(self, partitions: Iterable[Any]) -> None:
        for partition in partitions:
            self._uncommitted.pop(place_of(partition), None)


def settings(options: Options) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "group_instance_id": options.instance,
        "enable_auto_commit": options.commit == "auto",
        "auto_commit_interval_ms": 200,
        "auto_offset_reset": options.reset,
        "session_timeout_ms": options.session_ms,
        "heartbeat_interval_ms": options.heartbeat_ms,
        "metadata_max_age_ms": options.metadata_ms,
        "fetch_max_wait_ms": 100,
        "reconnect_backoff_max_ms": 200,
    }
    if options.assignor is not None:
        chosen["partition_assignment_strategy"] = [ASSIGNORS[options.assignor]]
    return chosen


def place_of(partition: Any) -> Partition:
    return partition.topic, partition.partition


def run(options: Options, reports: Reports, stop: threading.Event) -> None:
    member = KafkaPython(options, reports)

    def leave(*_: object) -> None:
        stop.set()
        member.interrupt()

    signal.signal(signal.SIGTERM, leave)
    try:
        while not stop.is_set():
            member.turn()
    except Interrupted:
        pass
    member.close()
