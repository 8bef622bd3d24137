"""Brokers that replicate to each other in simulated time: real logs, real fetchers, the real handler, no sockets.

A small controller of its own elects leaders and answers AlterPartition, as far as these tests need one.
"""

from __future__ import annotations

import asyncio
import types
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

from replica_cases import ORDERS, ORDERS_ID, Node, content, services

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig
from tidelog.controller.image import BrokerImage, ClusterImage, Endpoint
from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.handlers import fetch
from tidelog.handlers.handler import Context, Waiting
from tidelog.handlers.session import Session
from tidelog.replication.fetch_sessions import FetchSessions
from tidelog.replication.fetchers import Fetchers
from tidelog.replication.isr_keeper import IsrKeeper
from tidelog.replication.role import Role
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem
from tidelog.testing.sim.chance import Chance
from tidelog.testing.sim.sim_clock import SimClock
from tidelog.testing.sim.timeline import SimLoop, Timeline
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.handlers.handler import Services
    from tidelog.types import TopicPartition
    from tidelog.wire.declare import Message
    from tidelog.wire.messages.alter_partition import PartitionData, TopicData

BROKERS = (1, 2, 3)
LISTENER = "INTERNAL"
FETCH_VERSION = 18
LATENCY_S = 0.001
CONTROLLER = 0


@dataclass
class NotOurs:
    """Stands where a handler must not look."""


class Machine:
    """One broker: its replicas, who fetches for them, who keeps their in-sync replicas."""

    def __init__(self, cluster: Cluster, broker_id: int, fs: ForgetfulFilesystem) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.fs = fs
        self.lives = 0
        self.alive = False

    def start(self) -> None:
        """Opens what the disk holds, in a new life. Roles come from the controller."""
        cluster = self.cluster
        self.lives += 1
        self.alive = True
        self.epoch = cluster.next_epoch()
        self.loop = SimLoop(cluster.timeline, f"broker {self.broker_id}", cluster.chance.stream(f"{self.broker_id}"))  # type: ignore[abstract]
        cluster.loops.append(self.loop)
        cluster.run(self._open(), self.loop)

    async def _open(self) -> None:
        cluster = self.cluster
        self.node = Node(self.broker_id, cast("Any", cluster.clock), cluster.config, self.fs, cast("Any", NotOurs()))
        self.replicas = self.node.replicas
        self.fetchers = Fetchers(
            self.broker_id, lambda: self.epoch, lambda _number: self.send, cluster.clock, lambda: cluster.settings
        )
        self.keeper = IsrKeeper(
            self.broker_id,
            lambda: self.epoch,
            lambda request: self.send(CONTROLLER, request),
            cluster.clock,
            check_lag=self.replicas.check_lag,
            check_interval_ms=500,
        )
        self.replicas.following = self.fetchers
        self.replicas.proposals = self.keeper
        self.keeper.start()
        self.services = cluster.services(self)

    async def send(self, broker_id: int, request: Message) -> Message:
        cluster = self.cluster
        life = self.lives
        await asyncio.sleep(cluster.latency_s())
        cluster.check_link(self.broker_id, broker_id)
        cluster.sent.append((self.broker_id, broker_id, request))
        if isinstance(request, AlterPartitionRequest):
            answer: Message = cluster.alter_partition(self, request)
        else:
            assert isinstance(request, FetchRequest)
            answer = await cluster.fetch(self, cluster.machines[broker_id], request)
        await asyncio.sleep(cluster.latency_s())
        cluster.check_link(broker_id, self.broker_id)
        assert life == self.lives, "a dead process receives nothing"
        return cluster.tamper(broker_id, answer)

    def kill(self, forget: Forget = Forget.NOTHING) -> None:
        self.alive = False
        self.loop.kill()
        self.fs.crash(forget)
        self.fs.locked.clear()

    def run(self, step: Callable[[], Any]) -> Any:
        """Calls `step` as if from the broker's own loop."""

        async def call() -> Any:
            return step()

        return self.cluster.run(call(), self.loop)


class Cluster:
    def __init__(self, seed: int = 0, config: TopicConfig | None = None, brokers: tuple[int, ...] = BROKERS) -> None:
        self.config = config or TopicConfig()
        self.settings = BrokerConfig.parse({"replica.fetch.backoff.ms": "200"})
        self.timeline = Timeline()
        self.chance = Chance(seed)
        self.clock = SimClock(self.timeline)
        self.loops: list[SimLoop] = []
        self.sent: list[tuple[int, int, Message]] = []
        self.cut: set[tuple[int, int]] = set()
        """Links that carry nothing, from and to."""
        self.latency_s: Callable[[], float] = lambda: LATENCY_S
        self.tamper: Callable[[int, Message], Message] = lambda _sender, message: message
        self.refuse_isr: set[int] = set()
        """Brokers that the controller will not have in sync."""
        self.roles: dict[TopicPartition, Role] = {}
        """What the controller has decided."""
        self._epochs = 100
        self.machines = {
            each: Machine(self, each, ForgetfulFilesystem(seed * 10 + each, page_bytes=64)) for each in brokers
        }
        for machine in self.machines.values():
            machine.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for loop in self.loops:
            loop.kill()
            loop.discard()

    def next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs

    def services(self, machine: Machine) -> Services:
        image = ClusterImage("cluster", 0)
        for each in self.machines:
            image.brokers[each] = BrokerImage(each, {LISTENER: Endpoint("host", each)}, f"rack {each}")
        return services(
            broker_id=machine.broker_id,
            clock=self.clock,
            loop=machine.loop,
            image=image,
            settings=types.SimpleNamespace(broker=self.settings),
            replicas=machine.replicas,
            fetch_sessions=FetchSessions(10, 60_000),
        )

    # --- time ---

    def run(self, coroutine: Coroutine[Any, Any, Any], loop: SimLoop) -> Any:
        return self.timeline.run_until_done(loop.create_task(coroutine), 60.0)

    def pass_time(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> None:
        deadline = self.timeline.now + within_s
        while not condition():
            assert self.timeline.now < deadline, "it did not come about"
            assert self.timeline.step(), "nothing happens any more"

    # --- the network ---

    def check_link(self, source: int, target: int) -> None:
        machine = self.machines.get(target)
        if (source, target) in self.cut or (machine is not None and not machine.alive):
            raise PeerUnreachable(f"{source} does not reach {target}")

    async def fetch(self, sender: Machine, receiver: Machine, request: FetchRequest) -> Message:
        """By way of the real handler, and of the bytes that would be on the wire."""
        arrived = decode(FetchRequest, to_bytes(request, FETCH_VERSION), FETCH_VERSION)
        session = Session()
        session.peer_broker = sender.broker_id
        reply: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

        def deliver(message: FetchResponse) -> None:
            if not reply.done():
                reply.set_result(message)

        def serve() -> None:
            answer = fetch.handle(Context(receiver.services, FETCH_VERSION, None, LISTENER, session=session), arrived)
            if isinstance(answer, Waiting):
                answer.then(lambda message: deliver(_in_memory(message)))
            else:
                assert isinstance(answer, FetchResponse)
                deliver(_in_memory(answer))

        receiver.loop.call_soon(serve)
        message = await asyncio.wait_for(reply, 5.0)
        return decode(FetchResponse, to_bytes(message, FETCH_VERSION), FETCH_VERSION)

    # --- the controller ---

    def tell(self, role: Role) -> None:
        """Decides, and tells all live replicas."""
        self.roles[role.topic_partition] = role
        for each in role.replicas:
            self.tell_one(each, role)

    def tell_one(self, broker_id: int, role: Role) -> None:
        machine = self.machines[broker_id]
        if machine.alive:
            machine.run(lambda: machine.node.take(role))

    def lead(self, leader: int, isr: tuple[int, ...] | None = None, place: TopicPartition = ORDERS) -> None:
        """A new reign."""
        old = self.roles.get(place)
        replicas = tuple(self.machines)
        if old is None:
            self.tell(Role(place, ORDERS_ID, leader, 0, replicas if isr is None else isr, replicas, 0))
        else:
            self.tell(
                replace(
                    old,
                    leader=leader,
                    leader_epoch=old.leader_epoch + 1,
                    partition_epoch=old.partition_epoch + 1,
                    isr=old.isr if isr is None else isr,
                )
            )

    def alter_partition(self, sender: Machine, request: AlterPartitionRequest) -> AlterPartitionResponse:
        topics = [
            TopicDataResponse(
                topic_id=topic.topic_id, partitions=[self._alter(sender, topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
        return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)

    def _alter(self, sender: Machine, topic: TopicData, asked: PartitionData) -> PartitionDataResponse:
        assert topic.topic_id == ORDERS_ID
        role = next(each for each in self.roles.values() if each.topic_partition.partition == asked.partition_index)
        members = {each.broker_id: each.broker_epoch for each in asked.new_isr_with_epochs}
        isr = tuple(members)
        code = ErrorCode.NONE
        if asked.leader_epoch != role.leader_epoch or sender.broker_id != role.leader:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != role.partition_epoch and isr != role.isr:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(each in self.refuse_isr or not self._is_life(each, epoch) for each, epoch in members.items()):
            code = ErrorCode.INELIGIBLE_REPLICA
        elif isr != role.isr:
            role = self.roles[role.topic_partition] = replace(role, isr=isr, partition_epoch=role.partition_epoch + 1)
        return PartitionDataResponse(
            partition_index=asked.partition_index,
            error_code=code,
            leader_id=role.leader,
            leader_epoch=role.leader_epoch,
            isr=list(role.isr),
            partition_epoch=role.partition_epoch,
        )

    def _is_life(self, broker_id: int, epoch: int) -> bool:
        return self.machines[broker_id].alive and epoch in {-1, self.machines[broker_id].epoch}

    # --- looking at it ---

    def ends(self, place: TopicPartition = ORDERS) -> list[int]:
        return [each.node.partition(place).log.log_end_offset for each in self.machines.values() if each.alive]

    def same(self, place: TopicPartition = ORDERS) -> bool:
        logs = [each.node.partition(place).log for each in self.machines.values() if each.alive]
        return len({content(log) for log in logs}) == 1

    def high_watermarks(self, place: TopicPartition = ORDERS) -> list[int]:
        return [each.node.partition(place).high_watermark for each in self.machines.values() if each.alive]

    def append(self, leader: int, *values: bytes, place: TopicPartition = ORDERS) -> int:
        machine = self.machines[leader]
        last: int = machine.run(lambda: machine.node.append(*values, all_replicas=False, place=place))
        return last

    def fetches(self, source: int, target: int) -> list[FetchRequest]:
        return [
            each
            for sender, receiver, each in self.sent
            if (sender, receiver) == (source, target) and isinstance(each, FetchRequest)
        ]


def _in_memory(message: FetchResponse) -> FetchResponse:
    """As the bytes are when they have been sent: the log may be cut while they are on their way."""
    for topic in message.responses:
        for data in topic.partitions:
            if data.records is not None and not isinstance(data.records, bytes):
                data.records = cast("Any", data.records).read()
    return message
