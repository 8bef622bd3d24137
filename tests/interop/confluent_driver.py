"""confluent-kafka: librdkafka behind a Python face."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from client_drivers import DEFAULT_WRITING, Got, ReadDeadline, Sent, Writing
from confluent_kafka import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message


@contextmanager
def assigned_consumer(
    bootstrap: str, topic: str, offset: int = 0, settings: Mapping[str, str] = {}, *, partition: int = 0
) -> Iterator[Consumer]:
    """A consumer of one partition, by hand and without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused, but the library wants one",
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "check.crcs": "true",
            "fetch.wait.max.ms": "100",
            **settings,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        yield consumer
    finally:
        consumer.close()


class ConfluentDriver:
    name = "confluent-kafka"

    def can_write(self, record: Sent) -> bool:
        del record
        return True

    def write(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing = DEFAULT_WRITING
    ) -> list[int] | None:
        offsets: dict[int, int] = {}
        errors: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": how.codec,
                "acks": how.acks,
                "enable.idempotence": how.idempotent,
                "message.max.bytes": max(how.max_bytes, 1_000_000),
                "linger.ms": 5,
            }
        )
        for index, record in enumerate(records):

            def delivered(error: KafkaError | None, message: Message, index: int = index) -> None:
                if error is not None:
                    errors.append(str(error))
                else:
                    offset = message.offset()
                    offsets[index] = -1 if offset is None else offset

            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=how.partition,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
                on_delivery=delivered,
            )
            producer.poll(0)
        left = producer.flush(60)
        assert not errors, errors[0]
        assert left == 0, f"{left} records were not delivered"
        return [offsets[index] for index in range(len(records))] if how.acks != "0" else None

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Got]:
        with assigned_consumer(bootstrap, topic, start, partition=partition) as consumer:
            return self._read(consumer, count)

    def _read(self, consumer: Consumer, count: int) -> list[Got]:
        got: list[Got] = []
        deadline = ReadDeadline(self.name, count)
        while len(got) < count:
            deadline.check(len(got))
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            assert error is None, error
            got.append(_got(message))
        return got


def _got(message: Message) -> Got:
    offset = message.offset()
    assert offset is not None
    value, key = message.value(), message.key()
    assert not isinstance(value, str)
    assert not isinstance(key, str)
    headers: Any = message.headers() or []
    return Got(
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=key,
        value=value,
        headers=tuple((name, content) for name, content in headers),
    )
