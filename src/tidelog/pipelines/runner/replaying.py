"""Sends dead letters back to where they came from, each once: sending and remembering it are one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.runner.clients import client_config
from tidelog.pipelines.runner.dead_letters import ERROR, OFFSET, PARTITION, PIPELINE, PREFIX, TOPIC
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.fetching import ConsumerRecord


_TAKEN_AT_ONCE: Final = 1000
_POLL_S: Final = 1.0
_READING: Final = {"isolation.level": "read_committed", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}


class Letter(NamedTuple):
    """Where a record came from, and why it could not be read."""

    topic: str
    partition: int
    offset: int
    error: str


def replay(
    pipeline: str, topic: str, kafka: Mapping[str, Any], *, limit: int | None = None, dry_run: bool = False
) -> list[Letter]:
    """All dead letters of the pipeline that were not sent back before, up to now."""
    group = f"{pipeline}.replay"
    partitions = _partitions(topic, kafka)
    reading = client_config(ConsumerConfig, {**kafka, **_READING, "group.id": group})
    with Consumer[bytes, bytes](reading) as consumer:
        waiting = _Waiting(consumer, partitions)
        if dry_run:
            return _look(waiting, pipeline, limit)
        writing = client_config(ProducerConfig, {**kafka, "transactional.id": group})
        with Producer[bytes, bytes](writing) as producer:
            return _send_back(waiting, producer, pipeline, group, limit)


class _Waiting:
    """The letters between where the group has come to and where the topic ends now."""

    def __init__(self, consumer: Consumer[bytes, bytes], partitions: list[TopicPartition]) -> None:
        self._consumer = consumer
        self._ends = consumer.end_offsets(partitions)
        committed = consumer.committed(partitions)
        self._at: dict[TopicPartition, int] = dict(consumer.beginning_offsets(partitions))
        self._at |= {each: known.offset for each, known in committed.items() if known is not None}
        consumer.assign(dict(self._at))

    def some(self, at_most: int) -> list[ConsumerRecord[bytes, bytes]]:
        return self._consumer.poll(_POLL_S, min(at_most, _TAKEN_AT_ONCE))

    def positions(self) -> dict[TopicPartition, int]:
        return {**self._at, **self._consumer.positions()}

    def __bool__(self) -> bool:
        positions = self.positions()
        return any(positions[each] < end for each, end in self._ends.items())


def letter_of(headers: Any, pipeline: str) -> Letter | None:
    """None: it is no dead letter of this pipeline."""
    found = {key: (value or b"").decode(errors="replace") for key, value in headers if key.startswith(PREFIX)}
    if found.get(PIPELINE) != pipeline or not found.get(TOPIC):
        return None
    numbers = [found.get(PARTITION, ""), found.get(OFFSET, "")]
    partition, offset = (int(text) if text.isdigit() else -1 for text in numbers)
    return Letter(found[TOPIC], partition, offset, found.get(ERROR, ""))


def _partitions(topic: str, kafka: Mapping[str, Any]) -> list[TopicPartition]:
    with Admin(client_config(ClientConfig, kafka)) as admin:
        try:
            described = admin.describe_topic(topic)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise PipelineError(f"there are no dead letters: there is no topic {topic}") from None
            raise
    return [TopicPartition(topic, each.index) for each in described.partitions]


def _look(waiting: _Waiting, pipeline: str, limit: int | None) -> list[Letter]:
    letters: list[Letter] = []
    while waiting and (limit is None or len(letters) < limit):
        found = (letter_of(record.headers, pipeline) for record in waiting.some(_left(limit, letters)))
        letters += [letter for letter in found if letter is not None]
    return letters


def _send_back(
    waiting: _Waiting, producer: Producer[bytes, bytes], pipeline: str, group: str, limit: int | None
) -> list[Letter]:
    letters: list[Letter] = []
    while waiting and (limit is None or len(letters) < limit):
        records = waiting.some(_left(limit, letters))
        if not records:
            continue
        with producer.transaction():
            for record in records:
                letter = letter_of(record.headers, pipeline)
                if letter is not None:
                    kept = [(key, value) for key, value in record.headers if not key.startswith(PREFIX)]
                    producer.send(letter.topic, record.value, key=record.key, headers=kept)
                    letters.append(letter)
            producer.send_offsets(waiting.positions(), group)
    return letters


def _left(limit: int | None, letters: list[Letter]) -> int:
    return _TAKEN_AT_ONCE if limit is None else limit - len(letters)
