"""Idempotent producers that go on whatever happens to the cluster, and the judgement of what came of their records."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from asking import values_in
from confluent_kafka import Producer
from delivery_ledger import Ledger, check_partition

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from tidelog.testing.cluster import ClusterProcesses

QUEUED_MAX = 500
BURST, BURST_EVERY_S = 20, 0.02
"""A thousand records a second from each producer: enough to be caught at work, and the brokers can still restart."""
PATIENCE_S = 120.0
"""For hanging, not for slowness."""


class LoadThread(threading.Thread):
    """A producer that sends until it is told to stop. `ledger` is true at any time, complete at the end."""

    def __init__(self, name: int) -> None:
        super().__init__(name=f"producer {name}", daemon=True)
        self.ledger = Ledger(name)

    def ask_to_stop(self) -> None:
        raise NotImplementedError


class ConfluentThread(LoadThread):
    def __init__(self, name: int, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name)
        self._topic = topic
        self._partitions = partitions
        self._stop_asked = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": QUEUED_MAX,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 5000,
                # A broker that is paused answers nothing, and nobody closes its connections.
                "socket.timeout.ms": 5000,
                "request.timeout.ms": 5000,
                "delivery.timeout.ms": 600_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        partition = 0
        while not self._stop_asked.wait(BURST_EVERY_S):
            for _ in range(min(BURST, QUEUED_MAX - len(self._producer))):
                partition = (partition + 1) % self._partitions
                value = self.ledger.value(partition)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self.ledger.delivered)
            self._producer.poll(0)
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.ledger.failed.append(f"{left} records were never answered")

    def ask_to_stop(self) -> None:
        self._stop_asked.set()


class Load:
    """`with Load(cluster, topic, partitions) as load`: producers at work; leaving stops them."""

    def __init__(
        self,
        cluster: ClusterProcesses,
        topic: str,
        partitions: int,
        producers: Sequence[Callable[[int, str, str, int], LoadThread]] = (ConfluentThread, ConfluentThread),
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._threads = [make(name, cluster.bootstrap, topic, partitions) for name, make in enumerate(producers)]

    @property
    def acks(self) -> int:
        return sum(thread.ledger.acks for thread in self._threads)

    @property
    def ledgers(self) -> list[Ledger]:
        return [thread.ledger for thread in self._threads]

    def wait_for_acks(self, more: int = 200) -> None:
        """Until each producer has got so many more acknowledgements."""
        targets = {thread: thread.ledger.acks + more for thread in self._threads}
        try:
            eventually(
                lambda: all(thread.ledger.acks >= target for thread, target in targets.items()),
                "acknowledgements to come in",
                within_s=PATIENCE_S,
            )
        except TimeoutError as error:
            waiting = {thread.name: thread.ledger.waiting() for thread in self._threads}
            raise AssertionError(f"{error}; unanswered are {waiting}\n{self._cluster.report()}") from None

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.ask_to_stop()
        if error is None:
            for thread in self._threads:
                thread.join(PATIENCE_S + 60)
                assert not thread.is_alive(), "a producer hangs"

    def judge(self) -> int:
        """Every acknowledged record is there once, in order, on every replica alike; gives how many there are."""
        failed = [failure for ledger in self.ledgers for failure in ledger.failed]
        assert not failed, f"{len(failed)} records were refused, the first with: {failed[0]}"
        self._cluster.wait_until_identical(self._topic)
        for partition, found in self._cluster.wait_until_led(self._topic).items():
            with self._cluster.connect(found.leader, timeout_s=60) as client:
                check_partition(values_in(client, self._topic, partition), self.ledgers, partition)
        return self.acks
