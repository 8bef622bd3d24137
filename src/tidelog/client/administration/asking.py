"""How Admin asks: any broker, one, all, the controller or a coordinator, until there is an answer to rely on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from tidelog.client.cluster import Cluster
from tidelog.client.config import ClientConfig
from tidelog.client.errors import check, error_code, refusal
from tidelog.client.outcomes import Outcomes
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from tidelog.client.client_settings import ClientSettings
    from tidelog.client.connection import Connection
    from tidelog.client.metrics import ClientMetrics
    from tidelog.wire.declare import Message

    M = TypeVar("M", bound=Message)

K = TypeVar("K")
T = TypeVar("T")

_AT_ONCE_MAX = 32
_SEVERAL_KEYS_SINCE = 4


class Coordinates(IntEnum):
    GROUP = 0
    TRANSACTION = 1

    def __str__(self) -> str:
        return "group" if self is Coordinates.GROUP else "transactional id"


class Asking:
    """`async with` connects; leaving closes every connection."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | ClientConfig,
        config: ClientConfig | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Settings are keywords, a config, or both: keywords win."""
        if isinstance(bootstrap, ClientConfig):
            config = bootstrap
            bootstrap = config.bootstrap_servers
        self.config = replace(config or ClientConfig(), **settings)
        self._cluster = Cluster(bootstrap, self.config)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers."""
        await self._cluster.start()

    async def close(self) -> None:
        await self._cluster.close()

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, counted."""
        return self._cluster.metrics()

    @property
    def _work_ms(self) -> int:
        """What a broker may take to do something; as much is left for the way, so that its answer is heard."""
        return self.config.request_timeout_ms // 2

    async def _retrying(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retrying(what, attempt)

    async def _ask(
        self,
        broker: BrokerId | None,
        what: str,
        request: Message,
        response: type[M],
        code: Callable[[M], int] | None = None,
    ) -> M:
        """Asks one broker, or any; `code` is the error of the reply as a whole, which is raised."""
        return await self._retrying(what, lambda: self._ask_once(broker, what, request, response, code))

    async def _ask_once(
        self, broker: BrokerId | None, what: str, request: Message, response: type[M], code: Callable[[M], int] | None
    ) -> M:
        cluster = self._cluster
        connection = await (cluster.any_connection() if broker is None else cluster.connection(broker))
        reply = await connection.send(request, response)
        if code is not None:
            check(code(reply), getattr(reply, "error_message", None), what if broker is None else f"broker {broker}")
        return reply

    async def _ask_brokers(
        self,
        brokers: Iterable[int] | None,
        what: str,
        request: Message,
        response: type[M],
        code: Callable[[M], int],
    ) -> dict[BrokerId, M]:
        """Asks all brokers, or those named. An error of one is raised when all have answered."""
        while True:
            await self._retrying("listing brokers", lambda: self._cluster.refresh(()))
            chosen = sorted(self._cluster.metadata.nodes if brokers is None else map(BrokerId, brokers))
            ask = self._ask_while_there if brokers is None else self._ask
            asked = [ask(broker, what, request, response, code) for broker in chosen]
            replies: dict[BrokerId, M] = {}
            for broker, reply in zip(chosen, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                if isinstance(reply, BaseException):
                    raise reply
                if reply is not None:
                    replies[broker] = reply
            if len(replies) == len(chosen):
                return replies
            # One has left. What it did is done by others from now on, which have to be asked again.

    async def _ask_while_there(
        self, broker: BrokerId, what: str, request: Message, response: type[M], code: Callable[[M], int]
    ) -> M | None:
        """As `_ask`; None if it is not, or no longer, one of the cluster's brokers."""
        tried = False

        async def attempt() -> M | None:
            nonlocal tried
            if tried:
                await self._cluster.refresh(())
                if broker not in self._cluster.metadata.nodes:
                    return None
            tried = True
            return await self._ask_once(broker, what, request, response, code)

        return await self._retrying(what, attempt)

    async def _ask_controller(
        self,
        what: str,
        request: Message,
        response: type[M],
        codes: Callable[[M], Sequence[int]],
        prepare: Callable[[Message, int], Message] | None = None,
    ) -> M:
        """Asks the controller, whoever that is by then; `codes` are looked through for NOT_CONTROLLER."""

        async def attempt() -> M:
            connection = await self._cluster.controller()
            prepared = request if prepare is None else prepare(request, connection.version_of(type(request)))
            reply = await connection.send(prepared, response)
            if ErrorCode.NOT_CONTROLLER in codes(reply):
                raise refusal(ErrorCode.NOT_CONTROLLER, about=what)
            return reply

        return await self._retrying(what, attempt)

    async def _at_coordinator(
        self, kind: Coordinates, key: str, what: str, attempt: Callable[[Connection, BrokerId], Awaitable[T]]
    ) -> T:
        """Has `attempt` ask the coordinator of `key`, whoever that is by then."""

        async def find_and_attempt() -> T:
            coordinator = await self._coordinator(kind, key)
            return await attempt(await self._cluster.connection(coordinator), coordinator)

        return await self._retrying(what, find_and_attempt)

    async def _coordinator(self, kind: Coordinates, key: str) -> BrokerId:
        connection = await self._cluster.any_connection()
        request = FindCoordinatorRequest(key_type=kind, key=key)
        if connection.version_of(FindCoordinatorRequest) >= _SEVERAL_KEYS_SINCE:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        reply = await connection.send(request, FindCoordinatorResponse)
        about = f"{kind} {key}"
        check(reply.error_code, reply.error_message, about)
        for found in reply.coordinators:
            check(found.error_code, found.error_message, about)
            return BrokerId(found.node_id)
        return BrokerId(reply.node_id)

    async def _each(self, keys: Iterable[K], one: Callable[[K], Awaitable[T]]) -> Outcomes[K, T]:
        """`one` for every key, some at a time; what a broker refuses becomes that key's outcome."""
        places = asyncio.Semaphore(_AT_ONCE_MAX)

        async def outcome(key: K) -> T | BrokerError:
            async with places:
                try:
                    return await one(key)
                except BrokerError as error:
                    return error

        chosen = list(dict.fromkeys(keys))
        found = await asyncio.gather(*map(outcome, chosen))
        return Outcomes(zip(chosen, found, strict=True))


def outcome_of(code: int, message: str | None, about: str, result: T) -> T | BrokerError:
    """`result`, unless the code is one of an error."""
    return refusal(code, message, about) if code else result


def check_passing(codes: Iterable[int], about: str) -> None:
    """Raises what will pass, such as a coordinator that has moved, so that it is tried again."""
    for code in codes:
        if error_code(code).retriable:
            raise refusal(code, about=about)
