"""A client's view of a cluster: who is there, who leads what, and an open connection to each broker that is needed."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.client.backoff import Backoff, Deadline
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.config import ClientConfig
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    BadReply,
    BrokersUnreachable,
    ClientError,
    Closed,
    ConnectionLost,
    TimedOut,
    refusal,
    worth_retrying,
)
from tidelog.client.metadata import ClusterMetadata, Node, TopicMetadata
from tidelog.client.metrics import ClientMetrics, Counters
from tidelog.client.reconnecting import ReconnectPace
from tidelog.client.security import Security
from tidelog.errors import BrokerError, ErrorCode
from tidelog.net.address import Address
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from tidelog.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

_REFRESH_ON = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Cluster:
    """Shared by what runs on one event loop. `async with` connects; leaving closes every connection."""

    def __init__(self, bootstrap: str | Sequence[str], config: ClientConfig | None = None) -> None:
        self.config = config or ClientConfig()
        self.backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self.metadata = ClusterMetadata()
        self.counters = Counters()
        self._security = Security.of(self.config)
        self._pace = ReconnectPace(Backoff(self.config.reconnect_backoff_ms, self.config.reconnect_backoff_max_ms))
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connections: dict[BrokerId, Connection] = {}
        self._seed: Connection | None = None
        self._seeding = asyncio.Lock()
        self._opening: dict[BrokerId, asyncio.Lock] = {}
        self._every: set[Connection] = set()
        """Also those of the callers' own."""
        self._refreshed_s: dict[str, float] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Finds a broker that answers and learns the cluster's brokers; BrokersUnreachable names all that failed."""
        try:
            await self.refresh(())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._closed = True
        connections = [*self._connections.values(), *([self._seed] if self._seed is not None else [])]
        self._connections.clear()
        self._seed = None
        try:
            for connection in connections:
                await connection.close()
        finally:
            # Whoever is cancelled meanwhile, here or while closing a connection of its own, leaves none behind either.
            for connection in self._every:
                connection.abort()

    def metrics(self) -> ClientMetrics:
        return self.counters.snapshot(sum(not connection.closed for connection in self._every))

    async def refresh(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Asks any broker about `topics`; `create` lets it create missing ones if it is set up to."""
        named = [MetadataRequestTopic(name=name) for name in topics]
        await self._ask_metadata(MetadataRequest(topics=named, allow_auto_topic_creation=create))

    async def refresh_all(self) -> ClusterMetadata:
        """Asks about every topic there is; topics that are gone are forgotten."""
        reply = await self._ask_metadata(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        self.metadata = self.metadata.without(self.metadata.topics.keys() - {topic.name for topic in reply.topics})
        return self.metadata

    async def _ask_metadata(self, request: MetadataRequest) -> MetadataResponse:
        connection = await self.any_connection()
        reply = await connection.send(request, MetadataResponse)
        self.metadata = self.metadata.updated(reply)
        self.counters.metadata_refreshes += 1
        now_s = asyncio.get_running_loop().time()
        for topic in reply.topics:
            self._refreshed_s[topic.name or ""] = now_s
        return reply

    async def topic(self, name: str, deadline: Deadline | None = None, *, create: bool = False) -> TopicMetadata:
        """The topic, from the cache while that is young. Waits for a new topic's leaders to be elected.

        With `create`, an unknown topic is asked for until the deadline, since the broker may be creating it.
        """
        known = self.cached_topic(name)
        if known is not None:
            return known

        async def attempt() -> TopicMetadata:
            await self.refresh([name], create=create)
            found = self.metadata.topics.get(name)
            if found is None:
                raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=f"topic {name}")
            if found.error:
                raise refusal(found.error, about=f"topic {name}")
            return found

        give_up = frozenset[ErrorCode]() if create else frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        return await self.retrying(f"looking up topic {name}", attempt, deadline, give_up=give_up)

    def cached_topic(self, name: str) -> TopicMetadata | None:
        """The topic as it was last heard of, None when that is too long ago or was an error."""
        topic = self.metadata.topics.get(name)
        if topic is None or topic.error or not topic.partitions:
            return None
        age_s = asyncio.get_running_loop().time() - self._refreshed_s[name]
        return topic if age_s * 1000 < self.config.metadata_max_age_ms else None

    async def leader(self, partition: TopicPartition) -> Node:
        """The partition's leader by what is known; BrokerError(LEADER_NOT_AVAILABLE) when there is none."""
        if partition.topic not in self.metadata.topics:
            await self.refresh([partition.topic])
        found = self.metadata.partition(partition)
        if found is None:
            raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(partition))
        leader = self.metadata.nodes.get(found.leader)
        if leader is None:
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        return leader

    async def controller(self) -> Connection:
        """A connection to the broker that takes administrative requests."""
        if self.metadata.controller_id not in self.metadata.nodes:
            await self.refresh(())
        if self.metadata.controller_id not in self.metadata.nodes:
            return await self.any_connection()
        return await self.connection(self.metadata.controller_id)

    async def connection(self, broker: BrokerId) -> Connection:
        """An open connection to `broker`; concurrent callers share one attempt to open it."""
        async with self._opening.setdefault(broker, asyncio.Lock()):
            connection = self._connections.get(broker)
            if connection is not None and not connection.closed:
                return connection
            node = self.metadata.nodes.get(broker)
            if node is None:
                raise ConnectionLost(f"broker {broker} is no longer part of the cluster")
            try:
                opened = await self._open(Address(node.host, node.port))
            except ConnectionLost as error:
                raise ConnectionLost(
                    f"broker {broker} is advertised as {Address(node.host, node.port)}, which cannot be reached from "
                    f"here ({error}): if the broker runs, check its advertised.listeners"
                ) from error
            self._connections[broker] = opened
            return opened

    async def any_connection(self) -> Connection:
        """An open connection to some broker: one that is open, else a known broker, else the bootstrap list again."""
        # The seed first: on a connection to a leader the answer may wait behind a long fetch.
        async with self._seeding:
            for connection in (self._seed, *self._connections.values()):
                if connection is not None and not connection.closed:
                    return connection
            self._seed = await self._open_any()
            return self._seed

    async def dedicated(self, address: Address) -> Connection:
        """A connection of the caller's own, who also closes it: for answers that others must not wait behind."""
        return await self._open(address)

    async def _open_any(self) -> Connection:
        failures: list[tuple[str, str]] = []
        known = [Address(node.host, node.port) for node in self.metadata.nodes.values()]
        random.shuffle(known)
        now_s = asyncio.get_running_loop().time()
        for address in self._pace.ordered(dict.fromkeys([*known, *self._bootstrap]), now_s):
            try:
                return await self._open(address)
            except (ConnectionLost, BadReply) as error:
                failures.append((str(address), str(error)))
        raise BrokersUnreachable(failures)

    async def _open(self, address: Address) -> Connection:
        """Not before the address has had a rest from the last failure."""
        self._check_open()
        clock = asyncio.get_running_loop().time
        wait_s = self._pace.wait_s(address, clock())
        if wait_s:
            await asyncio.sleep(wait_s)
            self._check_open()
        try:
            connection = await Connection.open(address, self.config, self._security, self.counters)
        except ClientError:
            self._pace.failed(address, clock())
            raise
        self._pace.succeeded(address)
        self._every = {each for each in self._every if not each.closed} | {connection}
        try:
            self._check_open()
        except Closed:
            await connection.close()
            raise
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the client is closed")

    async def retrying(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T]],
        deadline: Deadline | None = None,
        *,
        give_up: frozenset[ErrorCode] = frozenset(),
        topics: Iterable[str] = (),
    ) -> T:
        """Repeats `attempt` until it succeeds, fails for good, or the deadline passes.

        Between attempts it waits ever longer, and refreshes what is known of `topics` when an error says it is stale.
        """
        deadline = deadline or Deadline(self.config.default_api_timeout_ms)
        tries = 0
        last: Exception | None = None
        limit = asyncio.timeout(deadline.remaining_s)
        try:
            async with limit:
                while True:
                    try:
                        return await attempt()
                    except (ClientError, BrokerError) as error:
                        if not worth_retrying(error) or (isinstance(error, BrokerError) and error.code in give_up):
                            raise
                        last = error
                        wait_s = self.backoff.delay_s(tries)
                        tries += 1
                        if wait_s >= deadline.remaining_s:
                            break
                        log.debug("%s: attempt %d failed: %s", what, tries, error)
                        self.counters.retries += 1
                        await asyncio.sleep(wait_s)
                        if _tells_of_change(error):
                            await self._refresh_quietly(topics)
        except TimeoutError:
            if not limit.expired():
                raise  # the attempt's own
        told = f"and {tries} attempts; last: {last}" if last is not None else "since nobody answered"
        raise TimedOut(f"{what} did not succeed within {deadline.timeout_ms} ms {told}") from last

    async def _refresh_quietly(self, topics: Iterable[str]) -> None:
        """A failure here is not the caller's: its own next attempt will tell."""
        try:
            await self.refresh(topics)
        except (ConnectionLost, BrokersUnreachable, BrokerError) as error:
            log.debug("refreshing metadata failed: %s", error)


def _tells_of_change(error: ClientError | BrokerError) -> bool:
    return isinstance(error, ConnectionLost) or (isinstance(error, BrokerError) and error.code in _REFRESH_ON)
