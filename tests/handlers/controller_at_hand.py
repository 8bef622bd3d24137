"""A controller on an embedded store with brokers that do what they are told, for tests of the handlers that ask it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint, SecurityProtocol
from tidelog.controller.image import ClusterImage, PartitionImage
from tidelog.controller.runtime import Controller
from tidelog.controller.settings import Settings
from tidelog.controller.topic_rules import TopicSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.handlers.session import Session
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataResponse
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import EmbeddedHome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidelog.handlers.handler import Services
    from tidelog.wire.declare import Message
    from tidelog.znodes.embedded import EmbeddedSession


class Desk:
    """Where requests are handed in."""

    def __init__(self, controller: Controller, sessions: Mapping[int, EmbeddedSession]) -> None:
        self.controller = controller
        self.sessions = sessions

    async def ask(
        self, handler: Handler[Any, Any], request: Message, *, version: int | None = None, as_broker: int | None = None
    ) -> Any:
        """The reply, both having been over the wire. Refusals are shaped as the router does."""
        version = handler.versions[1] if version is None else version
        session = Session()
        session.peer_broker = as_broker
        services = cast("Services", SimpleNamespace(controller=self.controller))
        ctx = Context(services, version, None, "PLAINTEXT", "", session)
        received = decode(type(request), to_bytes(request, version), version)
        try:
            reply = await cast("Awaitable[Message]", handler.handle(ctx, received))
        except BrokerError as error:
            if handler.refuse is not None:
                reply = handler.refuse(received, error.code, error.message)
            else:
                reply = handler.response(error_code=error.code)
        return decode(handler.response, to_bytes(reply, version), version)

    async def create(self, assignment: Mapping[int, Sequence[int]]) -> None:
        await self.controller.create(TopicSpec("t", -1, -1, assignment, {}))

    def partition(self, number: int = 0) -> PartitionImage:
        return self.controller.state.topics["t"].partitions[number]

    def epoch(self, broker_id: int) -> int:
        return self.controller.state.brokers[broker_id].epoch

    async def kill(self, broker_id: int) -> None:
        await self.sessions[broker_id].expire()
        for _ in range(20):  # turns of the loop, in which the watch is told
            await asyncio.sleep(0)
            await self.controller.idle()
        assert broker_id not in self.controller.state.brokers


async def _obey(_broker_id: int, request: Message) -> Message:
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(error_code=0)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=0, partition_errors=[])
    return UpdateMetadataResponse(error_code=0)


def with_controller(story: Callable[[Desk], Awaitable[None]], *, reigning: bool = True) -> None:
    """Runs a story in a cluster of brokers 1, 2 and 3, of which the first is the controller, or nobody is."""

    async def main() -> None:
        home = await EmbeddedHome.open(None, SystemClock())
        sessions = {broker_id: await home.begin_session() for broker_id in (1, 2, 3)}
        for path in paths.PERSISTENT:
            await sessions[1].create(path, make_parents=True)
        for broker_id, session in sessions.items():
            endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 9090 + broker_id)
            registration = nodes.BrokerRegistration((endpoint,), 0)
            await session.create(paths.broker(broker_id), registration.encode(), ephemeral=True)
        settings = Settings(
            sessions[1], ClusterImage("cluster", 1), BrokerConfig.parse({}), lambda _name, _config: None
        )
        controller = Controller(sessions[1], SystemClock(), settings, _obey, broker_id=1)
        if reigning:
            await controller.start()
            await controller.idle()
        await story(Desk(controller, sessions))
        await controller.stop()
        await home.close()

    asyncio.run(main())


def refused_everywhere(handler: Handler[Any, Any], request: Message, *, as_broker: int | None = None) -> None:
    """A broker that is not the controller says so."""

    async def story(desk: Desk) -> None:
        reply = await desk.ask(handler, request, as_broker=as_broker)
        assert reply.error_code == ErrorCode.NOT_CONTROLLER

    with_controller(story, reigning=False)
