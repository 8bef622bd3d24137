"""Idempotent producers that go on whatever happens to the cluster, and the judgement of what came of their records."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from asking import values_in
from confluent_kafka import Producer

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from confluent_kafka import KafkaError, Message

    from tidelog.testing.cluster import ClusterProcesses

QUEUED_MAX = 500
BURST, BURST_EVERY_S = 20, 0.02
"""A thousand records a second from each producer: enough to be caught at work, and the brokers can still restart."""
PATIENCE_S = 120.0
"""For hanging, not for slowness."""


@dataclass
class Ledger:
    """What one producer sent and what of it was acknowledged, per partition and by sequence number."""

    name: int
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    failed: list[str] = field(default_factory=list)
    acks: int = 0

    def value(self, partition: int) -> bytes:
        sequence = self.sent[partition]
        self.sent[partition] = sequence + 1
        return b"%d:%d:" % (self.name, sequence) + b"." * (sequence % 300)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledge(partition, int(value.split(b":")[1]), offset)

    def waiting(self) -> dict[int, int]:
        """How many records of each partition nobody has answered yet."""
        return {partition: sent - len(self.acknowledged[partition]) for partition, sent in self.sent.items()}

    def acknowledge(self, partition: int, sequence: int, offset: int) -> None:
        self.acknowledged[partition][sequence] = offset
        self.acks += 1


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


def check_partition(stored: list[bytes | None], ledgers: list[Ledger], partition: int) -> None:
    """Acknowledged records are where their acknowledgement said, none is there twice, each producer's are in order."""
    by_producer: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for offset, value in enumerate(stored):
        assert value is not None
        producer, sequence, _filling = value.split(b":", 2)
        by_producer[int(producer)].append((int(sequence), offset))
    for ledger in ledgers:
        where = f"partition {partition}, producer {ledger.name}"
        places = by_producer[ledger.name]
        sequences = [sequence for sequence, _offset in places]
        assert len(set(sequences)) == len(sequences), f"{where}: {_repeated(places)}"
        assert sequences == sorted(sequences), f"{where}: records are out of order"
        found = dict(places)
        acknowledged = ledger.acknowledged[partition]
        lost = {sequence: offset for sequence, offset in acknowledged.items() if sequence not in found}
        assert not lost, (
            f"{where}: {len(lost)} of {len(acknowledged)} acknowledged records are lost, "
            f"from offset {min(lost.values())} to {max(lost.values())} of {len(stored)}"
        )
        moved = [sequence for sequence, offset in acknowledged.items() if found[sequence] != offset]
        assert not moved, f"{where}: {len(moved)} records are not at the offset acknowledged"


def _repeated(places: list[tuple[int, int]]) -> str:
    offsets: dict[int, list[int]] = defaultdict(list)
    for sequence, offset in places:
        offsets[sequence].append(offset)
    twice = {sequence: found for sequence, found in offsets.items() if len(found) > 1}
    return f"{len(twice)} records are stored more than once, such as {next(iter(twice.items()))}"
