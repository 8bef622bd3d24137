"""A group's member on confluent-kafka, in either protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from confluent_kafka import Message
    from member import Options, Partition, Position, Reports

POLL_S = 0.1
BATCH = 50
GIVE_UP = (KafkaError._AUTO_OFFSET_RESET, KafkaError._FATAL)


class Confluent:
    def __init__(self, options: Options, reports: Reports) -> None:
        self._reports = reports
        self._commits = options.commit == "sync"
        self._uncommitted: dict[Partition, int] = {}
        self._consumer = Consumer(settings(options))
        topics = options.topics if options.pattern is None else [f"^{options.pattern}"]
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def turn(self) -> None:
        wait_s = POLL_S
        for _ in range(BATCH):
            message = self._consumer.poll(wait_s)
            if message is None:
                break
            self._take(message)
            wait_s = 0.0
        self._commit()

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() in GIVE_UP:
                raise KafkaException(error)
            return
        topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        assert not isinstance(value, str)
        self._reports.record(topic, partition, offset, value)
        self._uncommitted[topic, partition] = offset + 1

    def _commit(self) -> None:
        """What is refused while partitions move is tried again, until they are taken away."""
        if not self._commits or not self._uncommitted:
            return
        upto: list[Position] = [(*place, offset) for place, offset in self._uncommitted.items()]
        try:
            done = self._consumer.commit(offsets=[TopicPartition(*position) for position in upto], asynchronous=False)
            refusals = [place.error for place in done or () if place.error is not None]
            if refusals:
                raise KafkaException(refusals[0])
        except KafkaException as refusal:
            self._reports.refused(refusal.args[0].name(), upto)
            return
        self._uncommitted.clear()
        self._reports.committed(upto)

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        del consumer
        self._reports.gained(map(place_of, partitions))

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        del consumer
        self._commit()
        self._forget(partitions)
        self._reports.gave_up(map(place_of, partitions))

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        del consumer
        self._forget(partitions)
        self._reports.gave_up(map(place_of, partitions), why="lost")

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._uncommitted.pop(place_of(partition), None)


def settings(options: Options) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.protocol": options.protocol,
        "enable.auto.commit": options.commit == "auto",
        "auto.commit.interval.ms": 200,
        "auto.offset.reset": "error" if options.reset == "none" else options.reset,
        "topic.metadata.refresh.interval.ms": options.metadata_ms,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 200,
        # Lines about brokers that come and go are what a test of restarts provokes.
        "log_level": 3,
    }
    if options.instance is not None:
        chosen["group.instance.id"] = options.instance
    if options.protocol == "classic":
        chosen["session.timeout.ms"] = options.session_ms
        chosen["heartbeat.interval.ms"] = options.heartbeat_ms
        if options.assignor is not None:
            chosen["partition.assignment.strategy"] = options.assignor
    elif options.assignor is not None:
        chosen["group.remote.assignor"] = options.assignor
    return chosen


def place_of(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def run(options: Options, reports: Reports, stop: threading.Event) -> None:
    member = Confluent(options, reports)
    while not stop.is_set():
        member.turn()
    member.close()
