"""Clients that are there when brokers go, through librdkafka with its default settings."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from typing import TYPE_CHECKING, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from confluent_kafka import KafkaError, Message

_PATIENCE_S = 120.0
_PAUSE_S = 0.02


class Writable:
    """One record for each of some partitions, sent at once: when each was acknowledged by all in-sync replicas."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        self.acknowledged_s: list[float] = []
        self.failed = 0

    def warm(self, partitions: Sequence[int]) -> None:
        """Before anything happens: connections are open, and leaders known."""
        self.send(partitions)
        self.finish()
        if self.failed:
            raise RuntimeError(f"{self.failed} of {len(partitions)} partitions were not writable to begin with")
        self.acknowledged_s.clear()

    def send(self, partitions: Sequence[int]) -> None:
        for number in partitions:
            self._producer.produce(self._topic, b"writable?", partition=number, on_delivery=self._note)

    def finish(self) -> None:
        unsent = self._producer.flush(_PATIENCE_S)
        self.failed += unsent

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged_s.append(time.time())
        else:
            self.failed += 1


class SteadyLoad:
    """A trickle of records over all partitions of a topic, read back from some of them, as long as the block lasts."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: float, read: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second
        self._read = read
        self._mark = uuid.uuid4().hex.encode()
        """Tells these records from those of other runs."""
        self._over = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._produce, self._consume)]
        self._flowing = threading.Event()
        self._written: set[int] = set()
        """Numbers of acknowledged records in partitions that are read."""
        self._seen: set[int] = set()
        self.sent = 0
        self.failed = 0
        self.waits_s: list[tuple[float, float]] = []
        """When a record was sent, and how long until it was acknowledged."""

    @property
    def missing(self) -> int:
        return len(self._written - self._seen)

    def slowest_s(self, since_s: float) -> float:
        return max((wait for at, wait in self.waits_s if at + wait >= since_s), default=0.0)

    def usual_s(self, until_s: float) -> float:
        waits = sorted(wait for at, wait in self.waits_s if at + wait < until_s)
        return waits[len(waits) // 2] if waits else 0.0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        if not self._flowing.wait(_PATIENCE_S):
            raise RuntimeError("no record was acknowledged")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 2})
        producer.list_topics(self._topic, timeout=_PATIENCE_S)
        began = time.monotonic()
        for number in itertools.count():
            if self._over.is_set():
                break
            while number >= (time.monotonic() - began) * self._per_second:
                producer.poll(_PAUSE_S)
            partition = number % self._partitions
            self.sent += 1
            producer.produce(
                self._topic,
                b"%s-%d" % (self._mark, number),
                partition=partition,
                on_delivery=self._noting(number, partition),
            )
        self.failed += producer.flush(_PATIENCE_S)

    def _noting(self, number: int, partition: int) -> Callable[[KafkaError | None, Message], None]:
        sent_s = time.time()

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.failed += 1
                return
            self.waits_s.append((sent_s, time.time() - sent_s))
            if partition < self._read:
                self._written.add(number)
            if number >= self._partitions:
                self._flowing.set()

        return note

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "bench", "log_level": 2})
        consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in range(self._read)])
        until = float("inf")
        while time.monotonic() < until:
            for message in consumer.consume(1000, timeout=0.1):
                mark, _, number = (message.value() or b"").partition(b"-")
                if message.error() is None and mark == self._mark:
                    self._seen.add(int(number))
            if self._over.is_set() and not self._threads[0].is_alive():
                until = min(until, time.monotonic() + _PATIENCE_S)
                if self.missing == 0:
                    break
        consumer.close()
