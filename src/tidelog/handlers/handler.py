"""What a handler is, and what it is given.

A handler answers one API: it checks access, calls one room, shapes the reply. Its module declares the versions it
serves, and ApiVersions is derived from that, so that nothing is offered that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from tidelog.handlers.reply_cache import EncodedReply, ReplyCache
from tidelog.handlers.session import Session
from tidelog.replication.fencing import Fencing
from tidelog.wire.declare import Message

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.image import ClusterImage, TopicImage
    from tidelog.controller.producer_ids import ProducerIds
    from tidelog.controller.runtime import Controller
    from tidelog.controller.settings import Settings
    from tidelog.controller.topic_rules import TopicSpec
    from tidelog.coordinators.coordinator import Coordinator
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.topics import ClusterTopics
    from tidelog.coordinators.transactions.shard import TransactionShard
    from tidelog.errors import ErrorCode
    from tidelog.replication.fetch_sessions import FetchSessions
    from tidelog.replication.replicas import Replicas
    from tidelog.storage.store import LogStore
    from tidelog.types import TopicPartition

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class Silence(Enum):
    NO_REPLY = "no reply"
    CLOSE = "close"


NO_REPLY: Final[Literal[Silence.NO_REPLY]] = Silence.NO_REPLY
"""The client asked for no answer (acks=0)."""

CLOSE: Final[Literal[Silence.CLOSE]] = Silence.CLOSE
"""The client asked for no answer, and can only be told of a failure by losing its connection."""


class Waiting(Generic[R]):
    """A reply that comes later; the request itself is done. Whoever completes it must do so only once."""

    __slots__ = ("_abandon", "_reply", "_then")

    def __init__(self, abandon: Callable[[], None]) -> None:
        """`abandon` is called when nobody wants the reply any more."""
        self._abandon = abandon
        self._then: Callable[[R], None] | None = None
        self._reply: R | None = None

    def complete(self, reply: R) -> None:
        if self._then is None:
            self._reply = reply
        else:
            self._then(reply)

    def then(self, deliver: Callable[[R], None]) -> None:
        self._then = deliver
        if self._reply is not None:
            deliver(self._reply)

    def abandon(self) -> None:
        self._abandon()


Answer: TypeAlias = R | EncodedReply | Waiting[R] | Silence | Coroutine[Any, Any, R | Waiting[R] | Silence]
"""At once; later; never; or by a coroutine, until whose end the connection handles nothing else."""


@dataclass(frozen=True, slots=True)
class Handler(Generic[Q, R]):
    request: type[Q]
    response: type[R]
    versions: tuple[int, int]
    handle: Callable[[Context, Q], Answer[R]]
    refuse: Callable[[Q, ErrorCode, str], R] | None = None
    """The reply that refuses a whole request, for APIs whose response has no error code at the top."""

    @property
    def api(self) -> int:
        return self.request.API


class TopicAdmin(Protocol):
    """The controller, for those who change topics. Raises BrokerError, NOT_CONTROLLER where another broker is."""

    async def create(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicImage: ...

    async def grow(
        self, name: str, count: int, explicit: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None: ...

    async def delete(self, name: str) -> None: ...


class TopicsOnDemand(Protocol):
    async def create(self, spec: TopicSpec) -> object:
        """Has the controller create a topic that somebody needs, wherever it is."""


class Groups(Protocol):
    """The group coordinator, and what it needs around it."""

    @property
    def coordinator(self) -> Coordinator[GroupShard]: ...

    @property
    def known_topics(self) -> ClusterTopics: ...

    async def ensure_topic(self) -> None:
        """Creates the internal topic if it is not there."""

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """To be called in the step that appended a marker to a partition of the internal topic."""


class Transactions(Protocol):
    """The transaction coordinator, here or elsewhere in the cluster, and what it needs around it."""

    @property
    def coordinator(self) -> Coordinator[TransactionShard]: ...

    async def ensure_topic(self) -> None:
        """Creates the internal topic if it is not there."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Asks the coordinator whether a transaction is open in which these partitions are; `add` puts them into it.

        Every partition has an answer, NONE or what the producer is to be told. Nothing is raised, and nothing is tried
        again for long: the producer does that, after NOT_ENOUGH_REPLICAS, and after CONCURRENT_TRANSACTIONS where it is
        to be added. Clients that do not know TRANSACTION_ABORTABLE (before Produce v11, TxnOffsetCommit v4) are to be
        told INVALID_TXN_STATE instead."""


@dataclass(slots=True)
class Services:
    """The rooms a handler may call, wired once by the broker."""

    broker_id: int
    clock: Clock
    loop: asyncio.AbstractEventLoop
    image: ClusterImage
    topics: TopicAdmin
    topics_on_demand: TopicsOnDemand
    settings: Settings
    producer_ids: ProducerIds
    replicas: Replicas
    store: LogStore
    fetch_sessions: FetchSessions
    groups: Groups
    transactions: Transactions
    blocking: Executor
    """For work that holds no loop: the C calls in it release the GIL."""
    served: dict[int, Handler[Any, Any]]
    controller: Controller | None = None
    """This broker's part in controlling the cluster: it reigns, or waits until it may."""
    inter_broker_listener: str = ""
    """The name of the listener by which brokers reach each other."""
    cluster_secret: bytes = b""
    """What only brokers of this cluster know."""
    fencing: Fencing = field(default_factory=Fencing)
    """Which controller's requests count."""
    metadata_changed: Callable[[tuple[str, ...]], None] = lambda _deleted: None
    """Called when the controller has told of topics, with the names of those that are gone."""
    replies: ReplyCache = field(default_factory=ReplyCache)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the controller has told all there is to know of the cluster. Clients are not answered before: they
    would take it for a cluster without topics."""

    @property
    def config(self) -> BrokerConfig:
        """The settings in force: replaced as a whole when one changes while the broker runs."""
        return self.settings.broker


@dataclass(slots=True)
class Context:
    """One request's surroundings."""

    services: Services
    version: int
    client_id: str | None
    listener: str
    """The name of the listener by which the request came in."""
    client_host: str = ""
    session: Session = field(default_factory=Session)

    @property
    def peer_broker(self) -> int | None:
        """The broker of this cluster that asks; None for clients."""
        return self.session.peer_broker
