"""How a cluster on this machine is: what its processes do, and what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.local_cluster import asking
from tidelog.local_cluster.brokers import DIED

if TYPE_CHECKING:
    from tidelog.local_cluster.cluster import LocalCluster
    from tidelog.local_cluster.state import KnownBroker

UP = "up"
OUTSIDE = "outside"
"""It runs, but the cluster does not count it as a member: it is about to join, or cut off."""
PAUSED = "paused"


class BrokerStatus(NamedTuple):
    id: int
    address: str
    pid: int | None
    role: str | None
    """controller or broker; None for one that is no member now."""
    state: str
    rack: str | None
    log: str


class ServerStatus(NamedTuple):
    number: int
    address: str
    pid: int | None
    state: str


class ClusterStatus(NamedTuple):
    directory: str
    cluster_id: str | None
    """None while no broker answers."""
    controller: int | None
    bootstrap: str
    zookeeper: str
    zookeeper_servers: tuple[ServerStatus, ...]
    """Those that are ours."""
    brokers: tuple[BrokerStatus, ...]


def look(cluster: LocalCluster) -> ClusterStatus:
    """Raises LocalClusterError when there is no cluster."""
    known = cluster.known()
    answering = [each for each in known.running if each.process is not None and not each.process.paused]
    found = asking.describe([broker.address for broker in answering])
    members = {int(node.id) for node in found.brokers} if found is not None else set()
    controller = int(found.controller_id) if found is not None and found.controller_id >= 0 else None
    servers = cluster.zookeeper(known)
    started = servers is not None and cluster.directory.zookeeper.exists()
    ours: tuple[ServerStatus, ...] = ()
    if servers is not None and started:
        pids = servers.pids
        ours = tuple(
            ServerStatus(number, servers.address(number), pids.get(number), UP if servers.serves(number) else "down")
            for number in servers.numbers
        )
    return ClusterStatus(
        str(cluster.directory.path),
        found.cluster_id if found is not None else None,
        controller,
        known.bootstrap,
        known.zookeeper or ",".join(server.address for server in ours),
        ours,
        tuple(_broker(each, members, controller, str(cluster.directory.log(each.id))) for each in known.brokers),
    )


def _broker(broker: KnownBroker, members: set[int], controller: int | None, log: str) -> BrokerStatus:
    state = _state(broker, member=broker.id in members)
    role = ("controller" if broker.id == controller else "broker") if broker.id in members else None
    pid = broker.process.pid if broker.process is not None and broker.alive else None
    return BrokerStatus(broker.id, broker.address, pid, role, state, broker.rack, log)


def _state(broker: KnownBroker, *, member: bool) -> str:
    if broker.process is None:
        return broker.ended
    if not broker.process.alive:
        return DIED
    if broker.process.paused:
        return PAUSED
    return UP if member else OUTSIDE
