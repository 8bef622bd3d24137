"""`kill -9` under load: what was acknowledged is there, once, in order, and the log opens every time.

The default settings are under test, so the broker is given none but its directory and address. `--kills N` sets how
often it dies; `make test-kill` asks for fifty.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from asking import create_topic, values_in
from confluent_kafka import KafkaException, Producer

from tidelog.clock import SystemClock
from tidelog.testing import BrokerProcess, RawClient, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

TOPIC = "ledger"
PARTITIONS = 4
PRODUCERS = 3
ACKS_BETWEEN_KILLS = 3000
QUEUED_MAX = 2000


@dataclass
class Ledger:
    """What one producer sent and what of it was acknowledged, per partition and by sequence number."""

    name: int
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    failed: list[str] = field(default_factory=list)

    @property
    def acks(self) -> int:
        return sum(len(offsets) for offsets in self.acknowledged.values())

    def value(self, partition: int) -> bytes:
        sequence = self.sent[partition]
        self.sent[partition] = sequence + 1
        return b"%d:%d:" % (self.name, sequence) + b"." * (sequence % 700)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition][int(value.split(b":")[1])] = offset


class LoadThread(threading.Thread):
    """One idempotent producer that sends as fast as it may until it is told to stop, whatever happens meanwhile."""

    def __init__(self, name: int, bootstrap: str) -> None:
        super().__init__(name=f"producer {name}", daemon=True)
        self.ledger = Ledger(name)
        self._stop_asked = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 100,
                "queue.buffering.max.messages": QUEUED_MAX,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "delivery.timeout.ms": 600_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        partition = 0
        while not self._stop_asked.is_set():
            if len(self._producer) >= QUEUED_MAX:
                self._producer.poll(0.05)
                continue
            partition = (partition + 1) % PARTITIONS
            value = self.ledger.value(partition)
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self.ledger.delivered)
            self._producer.poll(0)
        left = self._producer.flush(120)
        if left:
            self.ledger.failed.append(f"{left} records were never answered")

    def stop(self) -> Ledger:
        self._stop_asked.set()
        self.join(timeout=180)
        assert not self.is_alive(), "a producer hangs"
        return self.ledger


def check_partition(stored: list[bytes | None], ledgers: list[Ledger], partition: int) -> None:
    """Acknowledged records are where their acknowledgement said, none is there twice, each producer's are in order."""
    by_producer: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for offset, value in enumerate(stored):
        assert value is not None
        producer, sequence, _filling = value.split(b":", 2)
        by_producer[int(producer)].append((int(sequence), offset))
    for ledger in ledgers:
        places = by_producer[ledger.name]
        sequences = [sequence for sequence, _offset in places]
        assert len(set(sequences)) == len(sequences), f"producer {ledger.name}: a record is stored twice"
        assert sequences == sorted(sequences), f"producer {ledger.name}: records are out of order"
        where = dict(places)
        lost = [sequence for sequence in ledger.acknowledged[partition] if sequence not in where]
        assert not lost, f"producer {ledger.name}: {len(lost)} acknowledged records are lost, the first is {lost[0]}"
        moved = [sequence for sequence, offset in ledger.acknowledged[partition].items() if where[sequence] != offset]
        assert not moved, f"producer {ledger.name}: {len(moved)} records are not at the offset acknowledged"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "topic_settings",
    [
        pytest.param({}, id="default settings"),
        # Many small segments: recovery then starts from producer snapshots instead of reading the whole log.
        pytest.param({"segment.bytes": str(1 << 20)}, id="small segments"),
    ],
)
def test_no_acknowledged_record_is_lost_or_stored_twice_when_the_broker_is_killed_under_load(
    tmp_path: Path,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
    topic_settings: dict[str, str],
) -> None:
    kills: int = pytestconfig.getoption("--kills")
    clock = SystemClock()
    recoveries_s: list[float] = []
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            create_topic(client, TOPIC, PARTITIONS, topic_settings)
        threads = [LoadThread(number, broker.bootstrap) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()

        def acks() -> int:
            return sum(thread.ledger.acks for thread in threads)

        for _ in range(kills):
            target = acks() + ACKS_BETWEEN_KILLS
            eventually(lambda target=target: acks() >= target, "acknowledgements to come in", within_s=120)  # type: ignore[misc]
            broker.kill()
            started = clock.monotonic()
            broker.start()
            recoveries_s.append(clock.monotonic() - started)
        ledgers = [thread.stop() for thread in threads]
        failed = [failure for ledger in ledgers for failure in ledger.failed]
        assert not failed, f"{len(failed)} records were refused, the first with: {failed[0]}"
        with RawClient(broker.port, timeout_s=60) as client:
            for partition in range(PARTITIONS):
                check_partition(values_in(client, TOPIC, partition), ledgers, partition)
        with capsys.disabled():
            total = sum(ledger.acks for ledger in ledgers)
            print(  # noqa: T201 -- the figures are the point of the long run
                f"\n{kills} kills -9: {total:,} records acknowledged, all stored once and in order; "
                f"the broker was back within {max(recoveries_s):.2f} s "
                f"(median {sorted(recoveries_s)[len(recoveries_s) // 2]:.2f} s)"
            )


def test_a_checker_that_cannot_fail_proves_nothing() -> None:
    ledger = Ledger(0)
    ledger.acknowledged[0] = {0: 0, 1: 1}
    stored: list[bytes | None] = [b"0:0:", b"0:1:"]
    check_partition(stored, [ledger], 0)
    for wrong in ([b"0:0:"], [b"0:0:", b"0:1:", b"0:1:"], [b"0:1:", b"0:0:"], [b"9:9:", b"0:0:", b"0:1:"]):
        with pytest.raises(AssertionError):
            check_partition(list(wrong), [ledger], 0)


def test_a_producer_reports_what_it_could_not_deliver() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1, "log_level": 0})
    ledger = Ledger(0)
    try:
        producer.produce(TOPIC, ledger.value(0), on_delivery=ledger.delivered)
    except KafkaException:
        pytest.fail("producing to a broker that is away fails only on delivery")
    assert producer.flush(20) == 0
    assert len(ledger.failed) == 1
