"""A real cluster in processes of its own, to be broken at will.

    with ZooKeeperServers(tmp_path / "zookeeper") as zookeeper:
        with ClusterProcesses(tmp_path / "cluster", zookeeper.connect_string) as cluster:
            cluster.create_topic("orders", partitions=6)
            cluster.kill(cluster.leader("orders", 0))

Brokers are numbered from 1 and keep their ports. Each cluster has a node of its own in ZooKeeper, so that one ZooKeeper
serves as many clusters, one after the other or at once, as there are tests.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.client.admin import Admin
from tidelog.local_cluster.ports import HOST, scattered_ports
from tidelog.net.address import Address
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.cluster_logs import difference
from tidelog.testing.cluster_view import ClusterView, view_of
from tidelog.testing.eventually import eventually
from tidelog.testing.raw_client import RawClient
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tidelog.testing.cluster_network import ClusterNetwork
    from tidelog.testing.cluster_view import PartitionView

T = TypeVar("T")

PATIENCE_S = 60.0
"""For hanging, not for slowness."""

QUICK_SETTINGS = {
    # What makes a failure known. Short, for tests wait for it; not so short that a busy machine looks like a dead one.
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "controlled.shutdown.retry.backoff.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
}


class _Broker(BrokerProcess):
    """A broker that is started through another command, which becomes it."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str], prefix: Sequence[str]) -> None:
        super().__init__(data_dir, settings, ready_within_s=PATIENCE_S, stopped_within_s=PATIENCE_S)
        self._prefix = prefix

    def _command(self) -> list[str]:
        return [*self._prefix, *super()._command()]


class ClusterProcesses:
    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        brokers: int = 3,
        settings: Mapping[str, str] = {},
        *,
        racks: Sequence[str] = (),
        network: ClusterNetwork | None = None,
    ) -> None:
        """`zookeeper` is host:port,... of servers that run. Settings are of all brokers, over QUICK_SETTINGS.
        With a network the brokers live in that, else on this machine's own."""
        self.zookeeper_connect = f"{zookeeper}/cluster-{uuid.uuid4().hex[:12]}"
        replicas = min(3, brokers)
        common = {
            "zookeeper.connect": self.zookeeper_connect,
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(max(1, replicas - 1)),
            **QUICK_SETTINGS,
            **settings,
        }
        self.addresses = (
            {number: Address(HOST, port) for number, port in enumerate(scattered_ports(brokers), start=1)}
            if network is None
            else {number: network.address(number) for number in range(1, brokers + 1)}
        )
        self._brokers: dict[int, BrokerProcess] = {}
        for number, address in self.addresses.items():
            own = {"broker.id": str(number), "listeners": f"PLAINTEXT://{address}"}
            if racks:
                own["broker.rack"] = racks[(number - 1) % len(racks)]
            prefix = [] if network is None else network.enter(number)
            self._brokers[number] = _Broker(directory / f"broker-{number}", {**common, **own}, prefix)
        self._down = set(self._brokers)
        self._paused: set[int] = set()
        self.apart: set[int] = set()
        """Brokers whose view of the cluster does not count, since they are cut off from it."""

    @property
    def numbers(self) -> list[int]:
        return list(self._brokers)

    @property
    def awake(self) -> list[int]:
        """The brokers that are to run and to be one cluster: neither paused, nor ended by order, nor cut off."""
        return [number for number in self._brokers if number not in self._paused | self._down | self.apart]

    @property
    def bootstrap(self) -> str:
        return ",".join(str(address) for address in self.addresses.values())

    def broker(self, number: int) -> BrokerProcess:
        return self._brokers[number]

    # Breaking and mending

    def start(self) -> Self:
        """Starts the brokers that do not run, all at once, and waits until they are one cluster."""
        try:
            with ThreadPoolExecutor(len(self._brokers)) as pool:
                list(pool.map(self._start, list(self._down)))
            self.wait_until_whole()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, number: int) -> None:
        self._brokers[number].start()
        self._down.discard(number)

    def kill(self, number: int) -> None:
        """SIGKILL: as when a machine loses its power, but for the page cache, which stays."""
        self._brokers[number].kill()
        self._paused.discard(number)
        self._down.add(number)

    def stop(self, number: int) -> None:
        """SIGTERM, and a clean end."""
        code = self._brokers[number].stop()
        self._down.add(number)
        assert code == 0, f"broker {number} stopped with exit code {code}:\n{self._brokers[number].log_tail()}"

    def restart(self, number: int) -> None:
        """Stops a broker if it runs, and starts it again. It may lag behind when this returns."""
        if number not in self._down:
            self.stop(number)
        self._start(number)

    def pause(self, number: int) -> None:
        """SIGSTOP: as when a machine hangs. Its connections stay open, and nobody answers."""
        os.kill(self._brokers[number].pid, signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        self._paused.discard(number)
        os.kill(self._brokers[number].pid, signal.SIGCONT)

    def wipe(self, number: int) -> None:
        """Removes all that a broker which does not run has stored."""
        assert number in self._down, "the broker still writes to its disk"
        shutil.rmtree(self._brokers[number].data_dir)

    # Asking

    def connect(self, number: int, *, timeout_s: float = 20.0) -> RawClient:
        """A connection to one broker that sends exactly what it is told."""
        return RawClient(self.addresses[number].port, self.addresses[number].host, timeout_s=timeout_s)

    def view(self, number: int | None = None) -> ClusterView:
        """How a broker sees the cluster; any broker, unless one is named."""
        return view_of(self.addresses[self.awake[0] if number is None else number])

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = -1, settings: Mapping[str, str] = {}
    ) -> None:
        """Returns when every broker knows the topic and leaders for it."""

        async def create() -> None:
            async with Admin(self.bootstrap) as admin:
                await admin.create_topic(name, partitions=partitions, replication_factor=replicas, configs=settings)

        asyncio.run(create())
        self.wait_until_led(name, partitions)

    def leader(self, topic: str, number: int = 0) -> int:
        return self.wait_until_led(topic)[number].leader

    # Waiting

    def wait_until_whole(self) -> int:
        """Until all brokers that run know each other and agree on the controller; gives that."""
        wanted = frozenset(self.awake)
        return self._agreed(
            lambda view: view.controller if view.brokers == wanted and view.controller in wanted else None,
            f"brokers {sorted(wanted)} to be one cluster with a controller",
        )

    def wait_for_controller(self, *, other_than: int | None = None) -> int:
        """Until all brokers that run agree on one of them."""
        return self._agreed(
            lambda view: view.controller if view.controller in self.awake and view.controller != other_than else None,
            "a controller",
        )

    def wait_until_led(self, topic: str, partitions: int | None = None) -> dict[int, PartitionView]:
        """Until each partition has a leader that runs, the same one for all; gives the partitions."""

        def led(view: ClusterView) -> dict[int, PartitionView] | None:
            found = view.of(topic)
            complete = bool(found) and (partitions is None or len(found) == partitions)
            return found if complete and all(each.leader in self.awake for each in found.values()) else None

        return self._agreed(led, f"leaders of {topic}")

    def wait_until_in_sync(self, *topics: str) -> None:
        """Until every replica of the topics is in sync, by every broker's account."""

        def in_sync(view: ClusterView) -> bool | None:
            found = [each for topic in topics for each in view.of(topic).values()]
            return True if found and all(each.in_sync == frozenset(each.replicas) for each in found) else None

        self._agreed(in_sync, f"all replicas of {', '.join(topics)} to be in sync")

    def wait_until_identical(self, *topics: str) -> None:
        """Until the logs of all replicas are the same to the last byte. Nobody may be writing."""
        self.wait_until_in_sync(*topics)
        for topic in topics:
            for number, found in self.view().of(topic).items():
                place = TopicPartition(topic, number)
                directories = {each: self._brokers[each].data_dir for each in found.replicas}
                self._settled(partial(difference, directories, place))

    def _settled(self, differing: Callable[[], str | None]) -> None:
        try:
            eventually(lambda: differing() is None, "identical logs", within_s=PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"replicas differ: {differing()}") from None

    def _agreed(self, judge: Callable[[ClusterView], T | None], waiting_for: str) -> T:
        """The first judgement, other than None, to which the views of all brokers that run lead."""

        def look() -> T | None:
            judgements = []
            for number in self.awake:
                self._brokers[number].pid  # noqa: B018 -- a broker that has ended by itself is an error at once
                try:
                    judgements.append(judge(self.view(number)))
                except OSError:
                    return None
            return judgements[0] if judgements and all(each == judgements[0] for each in judgements) else None

        try:
            return eventually(look, waiting_for, within_s=PATIENCE_S, every_s=0.05)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None

    def report(self) -> str:
        """How the brokers see the cluster, for people who wonder why a test failed."""
        lines = []
        for number in self.awake:
            try:
                view = self.view(number)
                lines.append(f"broker {number} sees {sorted(view.brokers)}, controller {view.controller}:")
                lines += [
                    f"    {place}: leader {found.leader} of epoch {found.leader_epoch}, {sorted(found.in_sync)} of "
                    f"{sorted(found.replicas)} in sync"
                    for place, found in sorted(view.partitions.items())
                ]
            except OSError as error:
                lines.append(f"broker {number} does not answer: {error}")
        return "\n".join(lines)

    # The end

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what runs, at once: nobody needs its data any more."""
        for number, broker in self._brokers.items():
            if broker.running:
                broker.kill()
            self._down.add(number)
        self._paused.clear()

    def log_tails(self, lines: int = 30) -> str:
        """What the brokers said last."""
        return "\n".join(f"--- broker {number}\n{each.log_tail(lines)}" for number, each in self._brokers.items())
