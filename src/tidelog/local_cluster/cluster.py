"""Starts, stops and breaks a cluster on this machine. Its processes outlive whoever started them.

    cluster = LocalCluster(Path("/tmp/cluster"))
    known = cluster.start(Plan(brokers=3))
    ...  # any Kafka client on known.bootstrap
    cluster.stop()

All that is to be known of it is in its directory: whoever opens that again sees the same cluster.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidelog.clock import SystemClock
from tidelog.local_cluster import asking, state
from tidelog.local_cluster.brokers import Brokers, in_order_of_leaving
from tidelog.local_cluster.directory import ClusterDirectory
from tidelog.local_cluster.errors import LocalClusterError
from tidelog.local_cluster.ports import FIRST_PORT, next_ports
from tidelog.local_cluster.properties import check_settings
from tidelog.local_cluster.state import KnownBroker, KnownCluster
from tidelog.znodes.launcher import LauncherError, ZooKeeperServers, find_jars, find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tidelog.clock import Clock

BROKERS_MAX = 50
_WHOLE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.05
_SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start. None: as many as there were, or what is usual."""

    brokers: int | None = None
    zookeeper: str | None = None
    """Where it is; None starts one."""
    zookeeper_servers: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    racks: Sequence[str] = ()
    """Given to the brokers in turn."""
    first_port: int | None = None


class LocalCluster:
    def __init__(
        self,
        directory: Path,
        *,
        tell: Callable[[str], None] = lambda _progress: None,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        self.directory = ClusterDirectory(directory)
        self._tell = tell
        self._clock = clock

    def known(self) -> KnownCluster:
        """Raises LocalClusterError when nothing was ever started here."""
        cluster = state.load(self.directory.state_file)
        if cluster is None:
            raise LocalClusterError(
                f"there is no cluster in {self.directory.path}: start one with `tidelog cluster start`, or name "
                "another directory with --dir"
            )
        return cluster

    def zookeeper(self, cluster: KnownCluster) -> ZooKeeperServers | None:
        """The servers that are ours."""
        if not cluster.zookeeper_servers:
            return None
        try:
            return ZooKeeperServers(self.directory.zookeeper, cluster.zookeeper_servers, outlive=True)
        except LauncherError as error:
            raise LocalClusterError(str(error)) from None

    def start(self, plan: Plan) -> KnownCluster:
        """Starts what the plan says, or what was here before, and waits until the cluster is whole."""
        check_settings(plan.settings)
        self.directory.make()
        with self.directory.locked():
            before = state.load(self.directory.state_file)
            if before is not None:
                self._refuse_if_running(before)
            cluster = _planned(plan, before)
            # The address of a ZooKeeper that is yet to be started does not matter to the check.
            Brokers(self.directory, cluster, cluster.zookeeper or "127.0.0.1:1", self._clock).check()
            state.save(self.directory.state_file, cluster)
            try:
                return self._start(cluster)
            except BaseException:
                self._tell("stopping what was started")
                self._stop(self.known())
                raise

    def stop(self) -> KnownCluster:
        """Brokers one after the other, then ZooKeeper. Data stays."""
        self.known()
        with self.directory.locked():
            return self._stop(self.known())

    def kill(self, number: int) -> None:
        """Ends a broker at once, as a crash would."""
        self.known().broker(number)
        with self.directory.locked():
            self._brokers(self.known()).kill(number)

    def restart(self, number: int) -> None:
        """Stops a broker if it runs, and starts it on the port and the data it had."""
        self.known().broker(number)
        with self.directory.locked():
            cluster = self.known()
            servers = self.zookeeper(cluster)
            if servers is not None and len(servers.pids) <= len(servers.numbers) // 2:
                raise LocalClusterError("ZooKeeper does not run: start the whole cluster with `tidelog cluster start`")
            brokers = self._brokers(cluster)
            if cluster.broker(number).alive:
                self._stop_broker(brokers, number)
            brokers.launch(number)
            self._wait_until_ready(brokers, number)

    def _start(self, cluster: KnownCluster) -> KnownCluster:
        connect = self._start_zookeeper(cluster)
        brokers = Brokers(self.directory, cluster, connect, self._clock)
        for broker in cluster.brokers:
            brokers.launch(broker.id)
        for broker in cluster.brokers:
            self._wait_until_ready(brokers, broker.id)
        self._wait_until_whole(brokers.cluster)
        return brokers.cluster

    def _start_zookeeper(self, cluster: KnownCluster) -> str:
        servers = self.zookeeper(cluster)
        if servers is None:
            self._tell(f"using ZooKeeper on {cluster.zookeeper}")
            return cluster.zookeeper
        started_s = self._clock.monotonic()
        try:
            find_java()
            find_jars()
            self._tell("starting ZooKeeper")
            servers.start()
        except LauncherError as error:
            raise LocalClusterError(
                f"{error}" if "log:" in f"{error}" else f"{error}; or use one that runs already, with --zookeeper"
            ) from None
        self._tell(f"ZooKeeper serves on {servers.connect_string} ({self._clock.monotonic() - started_s:.1f} s)")
        return servers.connect_string

    def _wait_until_ready(self, brokers: Brokers, number: int) -> None:
        took_s = brokers.wait_until_ready(number)
        self._tell(f"broker {number} is ready on {brokers.cluster.broker(number).address} ({took_s:.1f} s)")

    def _wait_until_whole(self, cluster: KnownCluster) -> None:
        """Until every broker is a member and one of them controls."""
        wanted = {broker.id for broker in cluster.brokers}
        deadline = self._clock.monotonic() + _WHOLE_WITHIN_S
        while True:
            found = asking.describe([broker.address for broker in cluster.brokers])
            members = {node.id for node in found.brokers} if found is not None else set()
            if found is not None and wanted <= members and found.controller_id in wanted:
                self._tell(f"broker {found.controller_id} is the controller")
                return
            if self._clock.monotonic() >= deadline:
                raise LocalClusterError(
                    f"after {_WHOLE_WITHIN_S:g} s only {sorted(members) or 'none'} of the brokers {sorted(wanted)} "
                    f"have joined, with {found.controller_id if found else 'nobody'} as controller; their logs are "
                    f"in {self.directory.path}"
                )
            time.sleep(_LOOK_EVERY_S)

    def _stop(self, cluster: KnownCluster) -> KnownCluster:
        brokers = self._brokers(cluster)
        brokers.bury()
        running = cluster.running
        found = asking.describe(_answering(cluster)) if len(running) > 1 else None
        for broker in in_order_of_leaving(running, found.controller_id if found is not None else None):
            self._stop_broker(brokers, broker.id)
        servers = self.zookeeper(cluster)
        if servers is not None and servers.pids:
            servers.stop()
            self._tell("ZooKeeper is stopped")
        return brokers.cluster

    def _stop_broker(self, brokers: Brokers, number: int) -> None:
        started_s = self._clock.monotonic()
        willing = brokers.stop(number)
        how = "is stopped" if willing else "did not stop and was killed"
        self._tell(f"broker {number} {how} ({self._clock.monotonic() - started_s:.1f} s)")

    def _brokers(self, cluster: KnownCluster) -> Brokers:
        servers = self.zookeeper(cluster)
        started = servers is not None and (self.directory.zookeeper / "ports.json").exists()
        connect = servers.connect_string if servers is not None and started else cluster.zookeeper
        return Brokers(self.directory, cluster, connect, self._clock)

    def _refuse_if_running(self, cluster: KnownCluster) -> None:
        running = cluster.running
        servers = self.zookeeper(cluster)
        if running:
            down = [str(broker.id) for broker in cluster.brokers if not broker.alive]
            hint = f"; down: {', '.join(down)} (`tidelog cluster restart {down[0]}`)" if down else ""
            raise LocalClusterError(
                f"the cluster in {self.directory.path} is running already, with {len(running)} of "
                f"{len(cluster.brokers)} brokers{hint}: stop it first, or name another directory with --dir"
            )
        if any(broker.process is not None for broker in cluster.brokers):
            self._tell("the cluster here was not stopped, and its processes are gone: its logs are recovered now")
        if servers is not None and servers.pids:
            self._tell("ZooKeeper still runs, and is used")


def _answering(cluster: KnownCluster) -> list[str]:
    return [broker.address for broker in cluster.running if broker.process is not None and not broker.process.paused]


def _planned(plan: Plan, before: KnownCluster | None) -> KnownCluster:
    """The plan applied to what was there before: more brokers are welcome, fewer would take data away."""
    had = before.brokers if before is not None else ()
    count = plan.brokers if plan.brokers is not None else len(had) or 3
    if count < len(had):
        raise LocalClusterError(
            f"the cluster has {len(had)} brokers, and {count} of them cannot have all its data: start all of them, or "
            "name another directory with --dir"
        )
    cluster = _with_zookeeper(plan, before)
    known_ports = {broker.port for broker in had}
    ports = next_ports(count - len(had), start=plan.first_port or FIRST_PORT, beside=known_ports)
    brokers = [*had, *(KnownBroker(len(had) + index, port) for index, port in enumerate(ports, start=1))]
    if plan.racks:
        brokers = [replace(each, rack=plan.racks[index % len(plan.racks)]) for index, each in enumerate(brokers)]
    settings = {**(before.settings if before is not None else {}), **plan.settings}
    return replace(cluster, settings=settings, brokers=tuple(replace(each, process=None) for each in brokers))


def _with_zookeeper(plan: Plan, before: KnownCluster | None) -> KnownCluster:
    if before is None:
        zookeeper = plan.zookeeper or ""
        return KnownCluster(zookeeper, 0 if zookeeper else plan.zookeeper_servers or 1)
    if plan.zookeeper is not None and plan.zookeeper != before.zookeeper:
        where = f"ZooKeeper on {before.zookeeper}" if before.zookeeper else "its own ZooKeeper"
        raise LocalClusterError(
            f"the cluster's topics are in {where}, and cannot be moved to another: name another directory with --dir"
        )
    if plan.zookeeper_servers is not None and plan.zookeeper_servers != before.zookeeper_servers:
        raise LocalClusterError(
            f"the cluster has {before.zookeeper_servers} ZooKeeper servers of its own: name another directory with "
            "--dir for one with another number"
        )
    return before
