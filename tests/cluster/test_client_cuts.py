"""Our producers, groups and transactions while brokers cannot be reached: by them, or by anybody.

At least once loses nothing, exactly once neither loses nor repeats. Needs root's rights on Linux, for network
namespaces; `make test-cluster` runs it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from committed_reader import committed_values
from delivery_loops import PATIENT, Copy, Load, Reader, everything

from tidelog.client import Admin, BrokerError, ClientConfig, ConnectionLost
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing.cluster_network import Way
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_fixtures import Place

    from tidelog.testing.cluster import ClusterProcesses
    from tidelog.testing.cluster_network import ClusterNetwork

pytest_plugins = ["cluster_fixtures"]
pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(7200)]

PARTITIONS = 3
QUICK: dict[str, Any] = {**PATIENT, "request_timeout_ms": 3000, "socket_connection_setup_timeout_ms": 1000}
NEWCOMER = ClientConfig(socket_connection_setup_timeout_ms=10_000, request_timeout_ms=10_000)
"""Longer than it takes everybody else to lose a connection, and to fail to open the next."""
SOURCE, TARGET, READERS, COPY = "source", "target", "readers", "copy"
GROUP, TRANSACTION = 0, 1


def leader(cluster: ClusterProcesses) -> int:
    return cluster.leader(SOURCE)


def group_coordinator(cluster: ClusterProcesses) -> int:
    return coordinator(cluster, GROUP, READERS)


def transaction_coordinator(cluster: ClusterProcesses) -> int:
    return coordinator(cluster, TRANSACTION, COPY)


def coordinator(cluster: ClusterProcesses, kind: int, key: str) -> int:
    with cluster.connect(cluster.awake[0]) as client:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        (found,) = client.call(request, 4, FindCoordinatorResponse).coordinators
    assert not found.error_code
    return found.node_id


def controller(cluster: ClusterProcesses) -> int:
    return cluster.wait_for_controller()


VICTIMS = [leader, group_coordinator, transaction_coordinator, controller]


class Clients:
    """All kinds of them at work, at the network's place for clients. What is not theirs to do is done `outside`."""

    def __init__(self, cluster: ClusterProcesses, network: ClusterNetwork, outside: ThreadPoolExecutor) -> None:
        self.cluster = cluster
        self.network = network
        self.load = Load(cluster.bootstrap, SOURCE, PARTITIONS, QUICK)
        modern = {**QUICK, "group_protocol": "consumer"}
        self.readers = [
            Reader(cluster.bootstrap, SOURCE, READERS, PARTITIONS, QUICK),
            Reader(cluster.bootstrap, SOURCE, f"modern {READERS}", PARTITIONS, modern),
        ]
        self.copy = Copy(cluster.bootstrap, SOURCE, TARGET, COPY, 1000, QUICK)
        self._outside = outside
        self._topics = 0

    async def outside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._outside, work, *arguments)

    async def go_on(self) -> None:
        await self.load.wait_for_more(500)
        await self.copy.wait_for(self.copy.committed + 100)
        for reader in self.readers:
            await reader.wait_for_commits(3)

    async def create_a_topic(self) -> None:
        """Whoever does not hear the answer asks again, and may be told that it is there."""
        self._topics += 1
        async with Admin(self.cluster.bootstrap, ClientConfig(**QUICK)) as admin:
            try:
                await admin.create_topic(f"another-{self._topics}", replication_factor=2)
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def live_through(self, cuts: list[Callable[[Clients], Any]]) -> list[list[tuple[int, bytes]]]:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self.load.run())
            reading = [tasks.create_task(reader.run()) for reader in self.readers]
            copying = tasks.create_task(self.copy.run(1 << 62))
            for cut in cuts:
                await self.go_on()
                await cut(self)
                await self.outside(self.cluster.wait_until_whole)
                await self.outside(self.cluster.wait_until_in_sync, SOURCE, TARGET)
            await self.go_on()
            self.load.stop()
            await sending
            stored = await everything(self.cluster.bootstrap, SOURCE, PARTITIONS, committed_only=False)
            for reader in self.readers:
                await reader.wait_for([{int(value) for _, value in partition} for partition in stored])
            await self.copy.wait_for(sum(map(len, stored)))
            for task in (*reading, copying):
                task.cancel()
        self.load.judge(stored)
        return stored


async def cut_from_clients(clients: Clients, victim: int, way: Way) -> None:
    """Nobody but the clients has lost it, so that it keeps what it leads; all that others lead goes on."""
    leads = {
        number
        for number, at in (await clients.outside(clients.cluster.wait_until_led, SOURCE)).items()
        if at.leader == victim
    }
    await clients.outside(clients.network.cut_from_clients, victim, way)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(clients.create_a_topic())
        if len(leads) < PARTITIONS:
            await clients.load.wait_for_more(500, [each for each in range(PARTITIONS) if each not in leads])
        with pytest.raises(ConnectionLost):
            await Connection.open(clients.cluster.addresses[victim], NEWCOMER)
        await clients.outside(clients.network.mend)


async def cut_off(clients: Clients, victim: int) -> None:
    """Others take over what it led and coordinated, and the clients find them."""
    clients.cluster.apart.add(victim)
    await clients.outside(clients.network.cut_off, victim)
    await clients.outside(clients.cluster.wait_until_led, SOURCE)
    await clients.create_a_topic()
    await clients.go_on()
    await clients.outside(clients.network.mend)
    clients.cluster.apart.discard(victim)


@pytest.mark.parametrize("way", [*Way, None], ids=lambda way: "from everybody" if way is None else way.value)
def test_nothing_is_lost_or_repeated_when_brokers_are_cut_off(place: Place, rounds: int, way: Way | None) -> None:
    cluster, network = place
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, PARTITIONS)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(max(rounds, len(VICTIMS)))]

    def cutting(find: Callable[[ClusterProcesses], int]) -> Callable[[Clients], Any]:
        async def cut(clients: Clients) -> None:
            victim = await clients.outside(find, cluster)
            await (cut_off(clients, victim) if way is None else cut_from_clients(clients, victim, way))

        return cut

    with ThreadPoolExecutor(1) as outside:
        outside.submit(int).result()  # a thread belongs to where the one that starts it is
        clients = Clients(cluster, network, outside)
        stored = network.run_at_clients(lambda: asyncio.run(clients.live_through([cutting(each) for each in victims])))
    expected = [value for partition in stored for _, value in partition]
    assert committed_values(cluster.bootstrap, TARGET, PARTITIONS) == expected
