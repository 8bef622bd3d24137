"""A cluster without brokers: real controllers on one embedded znode store, and doubles that remember what they hear."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint, SecurityProtocol
from tidelog.controller.dispatch import FULL, LEADER_DURING_DELETE
from tidelog.controller.image import ClusterImage, PartitionImage
from tidelog.controller.runtime import Controller
from tidelog.controller.settings import Settings
from tidelog.controller.topic_rules import TopicSpec
from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.types import TopicPartition
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import EmbeddedHome, EmbeddedSession
from tidelog.znodes.errors import ConnectionLost, SessionExpired
from tidelog.znodes.store import (
    ANY_VERSION,
    Operation,
    OperationResult,
    SessionListener,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
    ZnodeStore,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidelog.wire.declare import Message

TURNS_MAX = 100_000
"""So many turns of the event loop are waited for something that must happen. No test waits for time."""


class UnsteadyStore(ZnodeStore):
    """A session that can be suspended, resumed and lost at will, and that counts its transactions."""

    def __init__(self, home: EmbeddedHome, session: EmbeddedSession) -> None:
        self._home = home
        self._session = session
        self._state = SessionState.CONNECTED
        self._listeners: dict[SessionListener, None] = {}
        self._era = 0
        self._hearing = 0
        self.multis: list[Sequence[Operation]] = []
        self.lose_answers = False
        """Whether writes happen without being answered."""

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: SessionListener) -> None:
        self._listeners[listener] = None

    def remove_listener(self, listener: SessionListener) -> None:
        self._listeners.pop(listener, None)

    def deafen(self) -> None:
        """The watches that are set now are told nothing, as if what they tell were late."""
        self._hearing += 1

    def suspend(self) -> None:
        self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        self._become(SessionState.CONNECTED)

    async def lose(self) -> None:
        """The session ends, and its ephemeral nodes with it; a later `reconnect` begins another."""
        if self._state is not SessionState.LOST:
            self._become(SessionState.LOST)
            await self._session.expire()

    async def reconnect(self) -> None:
        self._session = await self._home.begin_session()
        self._become(SessionState.CONNECTED)

    def _become(self, state: SessionState) -> None:
        self._state = state
        self._era += 1
        self._hearing += 1
        for listener in list(self._listeners):
            listener(state)

    def _check(self) -> None:
        if self._state is SessionState.SUSPENDED:
            raise ConnectionLost("suspended")
        if self._state is SessionState.LOST:
            raise SessionExpired("lost")

    def _watch(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        hearing = self._hearing

        def told(event: WatchEvent) -> None:
            if hearing == self._hearing:
                watch(event)

        return told

    async def _asked(self, answer: Awaitable[Any]) -> Any:
        era = self._era
        result = await answer
        if era != self._era:
            raise ConnectionLost("the answer was lost")
        return result

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        self._check()
        made: str = await self._asked(
            self._session.create(path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents)
        )
        return made

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._check()
        found: tuple[bytes, Stat] = await self._asked(self._session.get(path, watch=self._watch(watch)))
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self._check()
        found: list[tuple[bytes, Stat] | None] = await self._asked(self._session.get_many(paths))
        return found

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        self._check()
        stat: Stat = await self._asked(self._session.set(path, data, version))
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._check()
        await self._asked(self._session.delete(path, version))

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        self._check()
        stat: Stat | None = await self._asked(self._session.exists(path, watch=self._watch(watch)))
        return stat

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        self._check()
        names: list[str] = await self._asked(self._session.children(path, watch=self._watch(watch)))
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._check()
        self.multis.append(operations)
        results: list[OperationResult] = await self._asked(self._session.multi(operations))
        if self.lose_answers:
            raise ConnectionLost("the answer was lost")
        return results

    async def close(self) -> None:
        await self.lose()


class ToldBroker:
    """Takes what a controller tells, as a broker would, and remembers it."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        self.controller_epoch = 0
        self.roles: dict[TopicPartition, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {}
        """Leader, leader epoch, in-sync replicas and replicas of what it holds."""
        self.leaders: dict[TopicPartition, int] = {}
        """What it would tell clients."""
        self.peers: set[int] = set()
        self.requests: list[Message] = []
        self.reachable = True
        self.answering = asyncio.Event()
        """Cleared: requests arrive but are not answered."""
        self.answering.set()
        self.cannot_delete = False
        self.failed_logs: set[TopicPartition] = set()
        """Of these it can use no replica."""

    async def take(self, request: Message) -> Message:
        if not self.reachable:
            raise PeerUnreachable(f"broker {self.broker_id}")
        newest = type(request).VERSIONS.last
        request = decode(type(request), to_bytes(request, newest), newest)
        await self.answering.wait()
        self.requests.append(request)
        assert isinstance(request, (LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest))
        error = self._fence(request)
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=error, topics=[] if error else self._take_roles(request))
        if isinstance(request, UpdateMetadataRequest):
            if not error:
                self._take_metadata(request)
            return UpdateMetadataResponse(error_code=error)
        return StopReplicaResponse(error_code=error, partition_errors=[] if error else self._stop(request))

    def _fence(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> ErrorCode:
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE if request.broker_epoch == self.epoch else ErrorCode.STALE_BROKER_EPOCH

    def _take_roles(self, request: LeaderAndIsrRequest) -> list[LeaderAndIsrTopicError]:
        if request.type == FULL:
            self.roles.clear()
        answers = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                place = TopicPartition(topic.topic_name, state.partition_index)
                self.roles[place] = (state.leader, state.leader_epoch, tuple(state.isr), tuple(state.replicas))
                code = ErrorCode.KAFKA_STORAGE_ERROR if place in self.failed_logs else ErrorCode.NONE
                errors.append(LeaderAndIsrPartitionError(partition_index=place.partition, error_code=code))
            answers.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return answers

    def _take_metadata(self, request: UpdateMetadataRequest) -> None:
        if request.type == FULL:
            self.leaders.clear()
        self.peers = {broker.id for broker in request.live_brokers}
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == LEADER_DURING_DELETE:
                    self.leaders.pop(topic_partition, None)
                else:
                    self.leaders[topic_partition] = state.leader

    def _stop(self, request: StopReplicaRequest) -> list[StopReplicaPartitionError]:
        answers = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                code = ErrorCode.KAFKA_STORAGE_ERROR if self.cannot_delete else ErrorCode.NONE
                if not code:
                    self.roles.pop(TopicPartition(topic.topic_name, state.partition_index), None)
                answers.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        return answers

    def leads(self) -> set[TopicPartition]:
        return {topic_partition for topic_partition, role in self.roles.items() if role[0] == self.broker_id}


class Member:
    """One broker of the cluster: a session, a controller that reigns or waits, and what it is told."""

    def __init__(self, cluster: Cluster, broker_id: int, store: UnsteadyStore, properties: Mapping[str, str]) -> None:
        self._cluster = cluster
        self.broker_id = broker_id
        self.store = store
        self.told = ToldBroker(broker_id)
        config = BrokerConfig.parse({"broker.id": str(broker_id), **properties})
        self.settings = Settings(store, ClusterImage("cluster", -1), config, lambda _name, _config: None)
        self.controller = self._new_controller()

    def _new_controller(self) -> Controller:
        return Controller(
            self.store,
            SystemClock(),
            self.settings,
            self._cluster.send,
            broker_id=self.broker_id,
            cluster_id="cluster",
        )

    async def register(self, rack: str | None = None) -> None:
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, f"host{self.broker_id}", 9092)
        registration = nodes.BrokerRegistration((endpoint,), 0, rack)
        await self.store.create(paths.broker(self.broker_id), registration.encode(), ephemeral=True)
        stat = await self.store.exists(paths.broker(self.broker_id))
        assert stat is not None
        self.told.epoch = stat.czxid

    async def bounce(self, rack: str | None = None) -> None:
        """Registers anew, faster than anybody sees that it was away."""
        await self.store.delete(paths.broker(self.broker_id))
        await self.register(rack)


class Cluster:
    def __init__(self, home: EmbeddedHome, admin: EmbeddedSession) -> None:
        self.home = home
        self.admin = admin
        """A session of its own, for looking and for what tools do."""
        self.members: dict[int, Member] = {}

    async def send(self, broker_id: int, request: Message) -> Message:
        member = self.members.get(broker_id)
        if member is None:
            raise PeerUnreachable(f"broker {broker_id}")
        return await member.told.take(request)

    async def add(
        self, broker_id: int, *, rack: str | None = None, stand: bool = True, properties: Mapping[str, str] = {}
    ) -> Member:
        store = UnsteadyStore(self.home, await self.home.begin_session())
        member = self.members[broker_id] = Member(self, broker_id, store, properties)
        await member.register(rack)
        if stand:
            await member.controller.start()
        return member

    async def kill(self, broker_id: int) -> None:
        """As `kill -9`: the session ends some time later, with everything that was in the process."""
        member = self.members.pop(broker_id)
        await member.store.lose()
        await member.controller.stop()

    @property
    def controller(self) -> Controller:
        """The one that reigns. Raises LookupError if not exactly one does."""
        reigning = self.reigning()
        if len(reigning) != 1:
            raise LookupError(f"these reign: {reigning}")
        return self.members[reigning.pop()].controller

    def reigning(self) -> set[int]:
        """Those who think that they do."""
        return {broker_id for broker_id, member in self.members.items() if member.controller.is_controller}

    async def settled(self) -> Controller:
        """Waits until there is one controller that has nothing left to do."""
        await until(lambda: len(self.reigning()) == 1)
        await until_idle(self.controller)
        return self.controller

    async def create(
        self,
        name: str = "t",
        partitions: int = 1,
        factor: int = -1,
        assignment: Mapping[int, Sequence[int]] | None = None,
        **settings: str,
    ) -> None:
        own = {key.replace("_", "."): value for key, value in settings.items()}
        spec = TopicSpec(name, -1 if assignment else partitions, factor, assignment or {}, own)
        await self.controller.create(spec)

    async def grow_isr(self, topic: str, number: int, *isr: int) -> ErrorCode:
        """Has the leader of a partition ask for these in-sync replicas."""
        state = self.controller.state
        partition = state.topics[topic].partitions[number]
        return await self.ask_isr(topic, number, partition, *isr)

    async def ask_isr(self, topic: str, number: int, known: PartitionImage, *isr: int) -> ErrorCode:
        state = self.controller.state
        proposal = PartitionData(
            partition_index=number,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self.members[each].told.epoch) for each in isr
            ],
        )
        request = AlterPartitionRequest(
            broker_id=known.leader,
            broker_epoch=self.members[known.leader].told.epoch,
            topics=[TopicData(topic_id=state.topics[topic].topic_id, partitions=[proposal])],
        )
        response = await self.controller.alter_partition(request.broker_id, request.broker_epoch, request)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def fail_log(self, broker_id: int, *failed: TopicPartition) -> None:
        """Replicas of a broker fail, and it says so."""
        self.members[broker_id].told.failed_logs.update(failed)
        note = nodes.encode_log_dir_event(broker_id)
        await self.admin.create(paths.LOG_DIR_EVENT_PREFIX, note, sequential=True)
        await until_idle(self.controller)

    async def stored_state(self, topic: str, number: int) -> tuple[nodes.PartitionState, int]:
        path = paths.partition_state(topic, number)
        data, stat = await self.admin.get(path)
        return nodes.PartitionState.decode(path, data), stat.version

    async def check_agreement(self) -> None:
        """What is stored, what the controller knows, and what brokers were told are the same."""
        controller = await self.settled()
        state = controller.state
        assert sorted(await self.admin.children(paths.TOPICS)) == sorted(state.topics)
        expected: dict[TopicPartition, PartitionImage] = {}
        for topic in state.topics.values():
            path = paths.topic(topic.name)
            stored = nodes.TopicAssignment.decode(path, (await self.admin.get(path))[0])
            assert stored.topic_id == topic.topic_id
            assert stored.partitions == {at: each.replicas for at, each in enumerate(topic.partitions)}
            for number, partition in enumerate(topic.partitions):
                node, version = await self.stored_state(topic.name, number)
                known = (partition.leader, partition.leader_epoch, partition.isr, partition.partition_epoch)
                assert known == (node.leader, node.leader_epoch, node.isr, version)
                expected[TopicPartition(topic.name, number)] = partition
        for broker_id, member in self.members.items():
            told = member.told
            assert told.leaders == {each: partition.leader for each, partition in expected.items()}
            assert told.peers == set(self.members)
            held = {each for each, partition in expected.items() if broker_id in partition.replicas}
            assert set(told.roles) == held
            for each in held:
                assert told.roles[each][:2] == (expected[each].leader, expected[each].leader_epoch)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


async def until_idle(controller: Controller) -> None:
    """Turns of the loop in which watches are told, then until everything that follows is done."""
    for _ in range(20):
        await asyncio.sleep(0)
        await controller.idle()


def live(story: Callable[[Cluster], Awaitable[None]], brokers: int = 3, properties: Mapping[str, str] = {}) -> None:
    """Runs a story in a cluster of brokers 1, 2, ..., of which the first is the controller."""

    async def main() -> None:
        home = await EmbeddedHome.open(None, SystemClock())
        cluster = Cluster(home, await home.begin_session())
        for path in paths.PERSISTENT:
            await cluster.admin.create(path, make_parents=True)
        for broker_id in range(1, brokers + 1):
            await cluster.add(broker_id, properties=properties)
        if brokers:
            await cluster.settled()
        await story(cluster)
        for member in cluster.members.values():
            await member.controller.stop()
        await home.close()
        left = Counter(task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task())
        assert not {name for name in left if not name.startswith("Task-")}, "tasks must end with their controller"

    asyncio.run(main())
