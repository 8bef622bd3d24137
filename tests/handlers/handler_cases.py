"""A broker's services around one handler: real logs, real settings, and whoever sends the request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from replica_cases import A, B, C, ManualClock, Node, services

from tidelog.config.broker import BrokerConfig
from tidelog.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from tidelog.controller.settings import Settings
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Waiting
from tidelog.handlers.session import Session
from tidelog.replication.fetch_sessions import FetchSessions
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.handlers.handler import Answer, Handler
    from tidelog.types import TopicId
    from tidelog.wire.declare import Message
    from tidelog.znodes.store import ZnodeStore

T = TypeVar("T")
LISTENER = "PLAINTEXT"
PATIENCE_S = 30.0


class Around:
    """Broker A of three, each in a rack of its own."""

    def __init__(self, znodes: ZnodeStore, properties: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.node = Node(A, self.clock)
        self.znodes = znodes
        self.image = ClusterImage("cluster", A)
        for each in (A, B, C):
            endpoints = {LISTENER: Endpoint(f"host-{each}", 9000 + each)}
            self.image.brokers[each] = BrokerImage(each, endpoints, f"rack-{each}", 10 + each)
        replicas = self.node.replicas
        self.settings = Settings(znodes, self.image, BrokerConfig.parse(properties), replicas.configure)
        self.gone: list[tuple[str, ...]] = []
        self.services = services(
            broker_id=A,
            clock=self.clock,
            loop=asyncio.get_running_loop(),
            image=self.image,
            settings=self.settings,
            replicas=replicas,
            fetch_sessions=FetchSessions(10, 60_000),
            metadata_changed=self.gone.append,
        )

    async def put_settings(self, topic: str, **values: str) -> None:
        data = nodes.encode_config({key.replace("_", "."): value for key, value in values.items()})
        await self.znodes.create(paths.topic_config(topic), data, make_parents=True)

    def put_topic(self, name: str, topic_id: TopicId, *partitions: PartitionImage) -> None:
        self.image.put_topic(TopicImage(name, topic_id, list(partitions)))

    def ask(self, handler: Handler[Any, Any], request: Message, version: int, peer: int | None = B) -> Answer[Any]:
        session = Session()
        session.peer_broker = peer
        context = Context(self.services, version, None, LISTENER, session=session)
        return handler.handle(context, request)

    async def answer(self, handler: Handler[Any, Any], request: Message, peer: int | None = B) -> Any:
        """The reply, however long it takes, to a request in the newest version."""
        answer = self.ask(handler, request, handler.versions[1], peer)
        if isinstance(answer, Waiting):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.then(future.set_result)
            return await asyncio.wait_for(future, PATIENCE_S)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def refusal(self, handler: Handler[Any, Any], request: Message, peer: int | None = B) -> ErrorCode:
        """Why a request as a whole is refused."""
        try:
            reply = await self.answer(handler, request, peer)
        except BrokerError as error:
            return error.code
        return ErrorCode(reply.error_code)


def around(story: Callable[[Around], Awaitable[T]], properties: dict[str, str] | None = None) -> T:
    async def main() -> T:
        clock = ManualClock()
        znodes = await open_embedded(None, clock)
        try:
            return await story(Around(znodes, properties or {}))
        finally:
            await znodes.close()

    return asyncio.run(main())
