"""Updates of keys, numbered: written by librdkafka, read back and judged.

Update `n` belongs to the key that `key_of` says, and its value begins with `n`. All go to one partition in order, so
that the newest value of a key is the one with the greatest number, and numbers of a key never fall along the log.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

_QUEUED_AT_ONCE = 5_000
_CONSUMED_AT_ONCE = 10_000
_PATIENCE_S = 120.0
_STRIDE = 7919
"""A prime: neighbours in the log have different keys, and every round goes through all of them."""

VALUE_BYTES = 100
KEY_BYTES = 13


def key_of(number: int, keys: int) -> int:
    # Each round starts elsewhere, so that rounds differ.
    return (number * _STRIDE + number // keys * 31) % keys


class Writer:
    """Knows which update of every key is the last."""

    def __init__(self, bootstrap: str, topic: str, keys: int) -> None:
        self.written = 0
        self.last = array("q", [-1]) * keys
        self._topic = topic
        self._keys = keys
        self._names = [b"key-%09d" % key for key in range(keys)]
        self._padding = bytes(VALUE_BYTES - 12)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                # Nothing twice and nothing out of order, although the broker is killed meanwhile.
                "enable.idempotence": True,
                "message.timeout.ms": int(_PATIENCE_S * 1000),
                "queue.buffering.max.messages": 200_000,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "delivery.report.only.error": True,
                "on_delivery": _raise_failure,
                "log_level": 2,
            }
        )

    def write(self, count: int, between: Callable[[], None] = lambda: None) -> None:
        """Queues so many updates, calling `between` now and then."""
        end = self.written + count
        while self.written < end:
            numbers = range(self.written, min(self.written + _QUEUED_AT_ONCE, end))
            batch: list[dict[str, Any]] = []
            for number in numbers:
                key = key_of(number, self._keys)
                self.last[key] = number
                batch.append({"key": self._names[key], "value": b"%012d" % number + self._padding})
            self._queue(batch)
            self.written = numbers[-1] + 1
            between()

    def flush(self) -> None:
        left = self._producer.flush(_PATIENCE_S)
        if left:
            raise RuntimeError(f"{left} updates were not acknowledged within {_PATIENCE_S:g} s")

    def _queue(self, batch: list[dict[str, Any]]) -> None:
        """A full queue takes the first few; which ones it did not take is written on them."""
        while batch:
            taken = self._producer.produce_batch(self._topic, batch, partition=0)
            self._producer.poll(0 if taken else 0.01)
            batch = [{"key": message["key"], "value": message["value"]} for message in batch if message.get("_error")]


class Read(NamedTuple):
    """One pass through the log."""

    records: int
    seconds: float
    newest: dict[bytes, int]
    """By key, the number of its last update."""
    offsets: dict[bytes, list[int]]
    """By key, where its records lie; only filled when asked for."""
    faults: int
    """Offsets that do not rise, and values of a key that fall."""


def read(bootstrap: str, topic: str, *, with_offsets: bool = False) -> Read:
    """From the start to where the log ended when the reading began."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-compaction",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 200,
            "fetch.queue.backoff.ms": 1,
            "log_level": 2,
        }
    )
    newest: dict[bytes, int] = {}
    offsets: dict[bytes, list[int]] = {}
    records = faults = 0
    last_offset = -1
    began = time.perf_counter()
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        heard = time.monotonic()
        while last_offset < end - 1 and time.monotonic() < heard + _PATIENCE_S:
            for message in consumer.consume(_CONSUMED_AT_ONCE, timeout=1.0):
                heard = time.monotonic()
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        end = min(end, message.offset() or 0)
                    continue
                key, offset = message.key() or b"", message.offset() or 0
                number = int((message.value() or b"")[:12])
                faults += (offset <= last_offset) + (number < newest.get(key, -1))
                newest[key] = number
                if with_offsets:
                    offsets.setdefault(key, []).append(offset)
                last_offset = offset
                records += 1
        return Read(records, time.perf_counter() - began, newest, offsets, faults)
    finally:
        consumer.close()


def _raise_failure(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        raise KafkaException(error)
