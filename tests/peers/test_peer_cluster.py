"""Java's idempotent producers, alone and beside librdkafka's, on a cluster that fails under them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from cluster_load import PATIENCE_S, ConfluentThread, LoadThread
from drivers import java_command_of
from failures import FAILURES, survive

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_fixtures import StartCluster
    from cluster_load import Load

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.timeout(7200)]


class JavaThread(LoadThread):
    """Reads what a Java producer, in a process of its own, says of its records."""

    def __init__(self, name: int, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name)
        command = java_command_of("load", "--bootstrap", bootstrap, "--topic", topic)
        self._process = subprocess.Popen(
            [*command, "--partitions", str(partitions), "--name", str(name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as reports:
            for line in reports:
                report = json.loads(line)
                if "error" in report:
                    self.ledger.failed.append(report["error"])
                else:
                    self.ledger.acknowledge(report["partition"], report["sequence"], report["offset"])
        code = self._process.wait(PATIENCE_S)
        if code != 0:
            self.ledger.failed.append(f"the Java producer ended with {code}")

    def ask_to_stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_what_java_was_promised_survives_when(
    start_cluster: StartCluster,
    rounds: int,
    capsys: pytest.CaptureFixture[str],
    failure: Callable[[ClusterProcesses, Load, int], None],
) -> None:
    survive(start_cluster(), failure, rounds, capsys, producers=(JavaThread, JavaThread, ConfluentThread))
