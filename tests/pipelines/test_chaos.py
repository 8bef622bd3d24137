"""Exactly once from topic to topic, while drivers, executors and brokers are killed with -9 at random.

Three brokers, a standalone Spark cluster of a master and two workers, and a load that never pauses. In the end
confluent-kafka, reading only what is committed, finds each row once, and each update of a count once.
`make test-pipelines KILLS=100` kills longer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from chaos_stage import COPIES, COUNTS, ROWS, Drivers, Load, key, row
from committed_reader import committed_values

from tidelog.testing import eventually
from tidelog.testing.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pathlib import Path

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]

KILLS = int(os.environ.get("PIPELINE_KILLS", "2"))
SEED = int(os.environ.get("PIPELINE_SEED", "1"))
PARTITIONS = 4
LATER_LINES_MAX = 4
GRACE_MAX_S = 1.0


class Chaos:
    def __init__(self, cluster: ClusterProcesses, spark: SparkCluster, drivers: Drivers) -> None:
        self._random = random.Random(SEED)
        self._cluster = cluster
        self._spark = spark
        self._drivers = drivers
        self._away: int | None = None
        self.killed: Counter[str] = Counter()

    def one_life(self) -> None:
        """A driver is started, lives for a while in which other things die, and is killed."""
        self._drivers.start()
        came = self._drivers.read_lines(self._random.randint(0, LATER_LINES_MAX))
        if came and self._random.random() < 0.3:
            self._kill_executor()
        if self._random.random() < 0.2:
            self._kill_broker()
        # Somewhere in the middle of whatever it does then.
        self._drivers.let_be(self._random.uniform(0.0, GRACE_MAX_S))
        self._drivers.kill()
        self.killed["drivers"] += 1
        self.mend()

    def _kill_executor(self) -> None:
        executors = self._spark.executors()
        if executors:
            os.kill(self._random.choice(executors), signal.SIGKILL)
            self.killed["executors"] += 1
            self._drivers.read_lines(1)

    def _kill_broker(self) -> None:
        self._away = self._random.choice(self._cluster.numbers)
        self._cluster.kill(self._away)
        self.killed["brokers"] += 1

    def mend(self) -> None:
        if self._away is not None:
            self._cluster.restart(self._away)
            self._away = None

    def at_least_one_of_each(self) -> None:
        """By chance nothing but drivers may have died."""
        self._drivers.start()
        assert self._drivers.read_lines(2) == 2, self._drivers.log_tail()
        eventually(self._spark.executors, "executors", within_s=240)
        self._kill_executor()
        self._kill_broker()
        self._drivers.let_be(GRACE_MAX_S)
        self._drivers.kill()
        self.killed["drivers"] += 1
        self.mend()


@pytest.mark.timeout(7200)
def test_each_row_arrives_once(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster()
    for topic in (ROWS, COPIES, COUNTS):
        cluster.create_topic(topic, PARTITIONS)
    with SparkCluster(tmp_path / "spark") as spark, Load(cluster.bootstrap) as load:
        drivers = Drivers(tmp_path, spark.master, spark.conf, cluster.bootstrap)
        try:
            chaos = Chaos(cluster, spark, drivers)
            chaos.at_least_one_of_each()
            for number in range(KILLS - 1):
                chaos.one_life()
                sys.stdout.write(f"{number + 2} of {KILLS} drivers killed, {load.rows} rows\n")
            rows = load.finish()
            cluster.wait_until_whole()
            drivers.start(to_the_end=True)
            drivers.wait()
        finally:
            drivers.kill()
    assert rows > 0
    check_copies(committed_values(cluster.bootstrap, COPIES, PARTITIONS), rows)
    updates = check_counts(committed_values(cluster.bootstrap, COUNTS, PARTITIONS), rows)
    sys.stdout.write(f"{rows} rows, each once; {updates} updates, each once; killed: {dict(chaos.killed)}\n")


def check_copies(values: list[bytes], rows: int) -> None:
    found = Counter(values)
    expected = Counter(row(number) + b" copied" for number in range(rows))
    assert not expected - found, f"lost: {list((expected - found).items())[:5]} of {rows}"
    assert not found - expected, f"repeated: {list((found - expected).items())[:5]} of {rows}"


def check_counts(values: list[bytes], rows: int) -> int:
    """A batch written twice would repeat counts; one that was lost, or read twice, would make the last ones wrong."""
    updates: dict[str, list[int]] = {}
    for value in values:
        update = json.loads(value)
        updates.setdefault(update["key"], []).append(update["count"])
    assert all(earlier < later for counts in updates.values() for earlier, later in pairwise(counts)), "repeated"
    expected = Counter(key(number).decode() for number in range(rows))
    assert {found: counts[-1] for found, counts in updates.items()} == expected
    return len(values)
