"""`kill -9` under load: what was acknowledged is there, once, in order, and the log opens every time.

The default settings are under test, so the broker is given none but its directory and address. `--kills N` sets how
often it dies; `make test-kill` asks for fifty.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from asking import create_topic, values_in
from confluent_kafka import Producer
from delivery_ledger import Ledger, check_partition

from tidelog.clock import SystemClock
from tidelog.testing import BrokerProcess, RawClient, eventually

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "ledger"
PARTITIONS = 4
PRODUCERS = 3
ACKS_BETWEEN_KILLS = 3000
QUEUED_MAX = 2000


class LoadThread(threading.Thread):
    """One idempotent producer that sends as fast as it may until it is told to stop, whatever happens meanwhile."""

    def __init__(self, name: int, bootstrap: str) -> None:
        super().__init__(name=f"producer {name}", daemon=True)
        self.ledger = Ledger(name, filling_max=700)
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
