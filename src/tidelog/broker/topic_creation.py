"""Creating a topic because somebody needs it, on whatever broker they ask: it is the controller who does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import BrokerError, ErrorCode, PeerUnreachable
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.controller.runtime import Controller
    from tidelog.controller.topic_rules import TopicSpec
    from tidelog.wire.declare import Message

TIMEOUT_MS = 30_000


class TopicCreation:
    def __init__(self, controller: Controller, ask_controller: Callable[[Message], Awaitable[Any]]) -> None:
        self._controller = controller
        self._ask_controller = ask_controller

    async def create(self, spec: TopicSpec) -> None:
        """Raises BrokerError, TOPIC_ALREADY_EXISTS included: others may have needed it at the same time."""
        if self._controller.is_controller:
            await self._controller.create(spec)
            return
        try:
            response = await self._ask_controller(_request(spec))
        except PeerUnreachable as error:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{spec.name!r} is not created yet: {error}") from error
        (result,) = response.topics
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{spec.name!r} is not created yet: try again")
        if result.error_code:
            raise BrokerError(ErrorCode(result.error_code), result.error_message or "")


def _request(spec: TopicSpec) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=spec.name,
        num_partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in spec.settings.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
