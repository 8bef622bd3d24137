"""Drives a broker through librdkafka, by way of confluent-kafka: what a program in Python gets.

Producing queues whole lists of records at once and asks for no delivery reports; the broker's end offset proves that
all arrived. Consuming makes an object per record in Python, which is what bounds it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

_QUEUED_AT_ONCE = 10_000
_CONSUMED_AT_ONCE = 10_000
_PATIENCE_S = 60.0


class Rate(NamedTuple):
    records: int
    seconds: float
    record_bytes: int

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.records * self.record_bytes / self.seconds / 1e6


def produce(bootstrap: str, topic: str, record_bytes: int, count: int) -> Rate:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": _raise_failure,
        }
    )
    producer.list_topics(topic, timeout=_PATIENCE_S)
    messages = [{"value": bytes(record_bytes)}] * min(_QUEUED_AT_ONCE, count)
    started = time.perf_counter()
    left = count
    while left:
        queued = producer.produce_batch(topic, messages if left >= len(messages) else messages[:left], partition=0)
        left -= queued
        producer.poll(0 if queued else 0.01)
    unsent = producer.flush(_PATIENCE_S)
    seconds = time.perf_counter() - started
    if unsent:
        raise RuntimeError(f"{unsent} of {count} records were not acknowledged within {_PATIENCE_S:g} s")
    return Rate(count, seconds, record_bytes)


def consume(bootstrap: str, topic: str, record_bytes: int, count: int) -> Rate:
    """Reads a topic's only partition from its start."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": False,
            "queued.max.messages.kbytes": 256 << 10,
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE_S)
        if end != count:
            raise RuntimeError(f"{count} records were produced, but the log ends at {end}")
        started = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = count
        while left:
            messages = consumer.consume(min(left, _CONSUMED_AT_ONCE), timeout=_PATIENCE_S)
            if not messages:
                raise RuntimeError(f"no record came for {_PATIENCE_S:g} s, {left} before the end")
            error = messages[0].error()
            if error is not None:
                raise KafkaException(error)
            left -= len(messages)
        return Rate(count, time.perf_counter() - started, record_bytes)
    finally:
        consumer.close()


def _raise_failure(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        raise KafkaException(error)
