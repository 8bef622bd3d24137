"""kafka-python: a client in pure Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client_drivers import DEFAULT_WRITING, Got, ReadDeadline, Sent, Writing
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Sequence


class KafkaPythonDriver:
    name = "kafka-python"

    def can_write(self, record: Sent) -> bool:
        """Its headers must have contents."""
        return all(content is not None for _name, content in record.headers)

    def write(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing = DEFAULT_WRITING
    ) -> list[int] | None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if how.codec == "none" else how.codec,
            acks="all" if how.acks == "all" else int(how.acks),
            enable_idempotence=how.idempotent,
            max_request_size=max(how.max_bytes, 1_048_576),
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=how.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=60)
            offsets = [future.get(timeout=60).offset for future in futures]
        finally:
            producer.close()
        return offsets if how.acks != "0" else None

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Got]:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="none", check_crcs=True, fetch_max_wait_ms=100
        )
        got: list[Got] = []
        deadline = ReadDeadline(self.name, count)
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            while len(got) < count:
                deadline.check(len(got))
                came = consumer.poll(timeout_ms=100)
                got.extend(_got(record) for record in came.get(place, []))
        finally:
            consumer.close()
        return got[:count]


def _got(record: Any) -> Got:
    return Got(
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple((name, content) for name, content in record.headers),
    )
