"""The broker processes of a cluster on this machine: starts them, sees them become ready, ends them.

Every step is written down before the next one, so that whatever is interrupted, a later command knows what runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.config.broker import BrokerConfig
from tidelog.local_cluster import broker_log, state
from tidelog.local_cluster.errors import LocalClusterError
from tidelog.local_cluster.ports import is_free, next_ports
from tidelog.local_cluster.process import spawn
from tidelog.local_cluster.properties import broker_properties, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.clock import Clock
    from tidelog.local_cluster.directory import ClusterDirectory
    from tidelog.local_cluster.state import KnownBroker, KnownCluster

STOPPED, KILLED, DIED = "stopped", "killed", "died"
"""How a broker has ended: as it was told to, at once as it was told to, or by itself."""

READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.02
_PORT_ATTEMPTS_MAX = 5
_LAST_WORDS_LINES = 15


class Brokers:
    def __init__(self, directory: ClusterDirectory, cluster: KnownCluster, connect: str, clock: Clock) -> None:
        """`connect` is what the brokers reach ZooKeeper by."""
        self.cluster = cluster
        self._directory = directory
        self._connect = connect
        self._clock = clock
        self._launched: dict[int, tuple[int, float]] = {}
        """For each broker started here: how long its log was, and when that was."""

    def check(self) -> None:
        """Raises ConfigError when no broker could run with the cluster's settings."""
        for broker in self.cluster.brokers:
            BrokerConfig.parse(self._properties(broker))

    def launch(self, number: int) -> None:
        broker = self.cluster.broker(number)
        if not is_free(broker.port):
            if self._directory.log(number).exists():
                raise LocalClusterError(
                    f"port {broker.port} of broker {number} is taken by another process: end that, or start a cluster "
                    "in another directory"
                )
            broker = self._with_another_port(broker)
        home = self._directory.broker(number)
        home.mkdir(parents=True, exist_ok=True)
        properties = self._directory.properties(number)
        with properties.open("w", encoding="utf-8") as file:
            file.write(render(self._properties(broker)))
        log = self._directory.log(number)
        self._launched[number] = broker_log.size(log), self._clock.monotonic()
        command = [sys.executable, "-m", "tidelog", "broker", "--config", str(properties)]
        self._remember(replace(broker, process=spawn(command, log, _environment())))

    def wait_until_ready(self, number: int) -> float:
        """Gives how many seconds after its launch the broker said so."""
        log = self._directory.log(number)
        for attempt in range(_PORT_ATTEMPTS_MAX):
            start, launched_s = self._launched[number]
            while True:
                alive = self.cluster.broker(number).alive  # looked at first: the last words come before the end
                if broker_log.says_ready(log, start):
                    return self._clock.monotonic() - launched_s
                if not alive:
                    break
                if self._clock.monotonic() - launched_s > READY_WITHIN_S:
                    raise self._failure(number, f"is not ready after {READY_WITHIN_S:g} s")
                time.sleep(_LOOK_EVERY_S)
            first_time = start == 0
            if not first_time or is_free(self.cluster.broker(number).port) or attempt + 1 == _PORT_ATTEMPTS_MAX:
                break
            # Somebody took the port after we had found it free, and nobody knows it yet: take another one.
            log.unlink()
            self._remember(self._with_another_port(self.cluster.broker(number)))
            self.launch(number)
        raise self._failure(number, "has ended at start")

    def stop(self, number: int) -> bool:
        """SIGTERM, upon which the broker hands over its leaders. False when it had to be killed after all."""
        broker = self.cluster.broker(number)
        willing = True
        if broker.process is not None and broker.process.alive:
            broker.process.send(signal.SIGTERM)
            broker.process.send(signal.SIGCONT)  # one that is paused can end only when it goes on
            willing = broker.process.wait_for_end(STOPPED_WITHIN_S, self._clock)
            if not willing:
                self._kill(broker)
        self._remember(replace(broker, process=None, ended=STOPPED if willing else KILLED))
        return willing

    def bury(self) -> None:
        """Writes down which brokers have ended by themselves, so that they are not looked for again."""
        for broker in self.cluster.brokers:
            if broker.process is not None and not broker.alive:
                self._remember(replace(broker, process=None, ended=DIED))

    def kill(self, number: int) -> None:
        broker = self.cluster.broker(number)
        if not broker.alive:
            raise LocalClusterError(f"broker {number} does not run")
        self._kill(broker)
        self._remember(replace(broker, process=None, ended=KILLED))

    def _kill(self, broker: KnownBroker) -> None:
        assert broker.process is not None
        broker.process.send(signal.SIGKILL)
        if not broker.process.wait_for_end(STOPPED_WITHIN_S, self._clock):
            raise LocalClusterError(f"broker {broker.id} (pid {broker.process.pid}) does not end, not even by SIGKILL")

    def _remember(self, broker: KnownBroker) -> None:
        self.cluster = self.cluster.with_broker(broker)
        state.save(self._directory.state_file, self.cluster)

    def _properties(self, broker: KnownBroker) -> dict[str, str]:
        count = len(self.cluster.brokers)
        return broker_properties(broker, count, self._directory.data(broker.id), self._connect, self.cluster.settings)

    def _with_another_port(self, broker: KnownBroker) -> KnownBroker:
        taken = {other.port for other in self.cluster.brokers}
        return replace(broker, port=next_ports(1, start=broker.port + 1, beside=taken)[0])

    def _failure(self, number: int, what: str) -> LocalClusterError:
        log = self._directory.log(number)
        words = broker_log.tail(log, _LAST_WORDS_LINES, self._launched[number][0])
        return LocalClusterError(f"broker {number} {what}; its log ({log}) ends:\n{words}")


def in_order_of_leaving(brokers: Sequence[KnownBroker], controller: int | None) -> list[KnownBroker]:
    """The controller last: else each one that leaves would hand over to the next."""
    return sorted(brokers, key=lambda broker: (broker.id == controller, broker.id))


def _environment() -> dict[str, str]:
    """This process's, without what would configure all brokers alike behind the user's back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}
