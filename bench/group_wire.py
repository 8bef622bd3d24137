"""Many group members over a few hundred connections: requests as bytes, replies as messages.

Members of one group sit on connections of their own, since a broker may let everything on a connection wait behind a
join; different groups share them.
"""

from __future__ import annotations

import asyncio
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.errors import ErrorCode
from tidelog.net.channel import Channel
from tidelog.wire.codec import decode
from tidelog.wire.headers import encode_request, response_body
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from types import TracebackType

    from tidelog.wire.declare import Message

    M = TypeVar("M", bound=Message)

CONNECTIONS = 300
_IN_FLIGHT_MAX = 200
_CLIENT_ID = "bench-groups"
_LENGTH_BYTES = 4
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = 4

_VERSIONS: dict[type[Message], tuple[int, type[Message]]] = {
    FindCoordinatorRequest: (4, FindCoordinatorResponse),
    JoinGroupRequest: (9, JoinGroupResponse),
    SyncGroupRequest: (5, SyncGroupResponse),
    HeartbeatRequest: (4, HeartbeatResponse),
    LeaveGroupRequest: (5, LeaveGroupResponse),
    ConsumerGroupHeartbeatRequest: (1, ConsumerGroupHeartbeatResponse),
}


class Wire:
    """A pool of connections to one broker."""

    def __init__(self, channels: list[Channel]) -> None:
        self._channels = channels
        self._correlation_ids = count(1)

    @classmethod
    async def connect(cls, port: int, connections: int = CONNECTIONS) -> Self:
        opening = (
            Channel.connect("127.0.0.1", port, connect_timeout_s=30.0, in_flight_max=_IN_FLIGHT_MAX)
            for _ in range(connections)
        )
        return cls(await asyncio.gather(*opening))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def place(self, number: int) -> Place:
        """The connection that member `number` uses."""
        return Place(self, self._channels[number % len(self._channels)])

    async def wake_coordinator(self) -> None:
        """Asks for a coordinator until there is one: only then does a new broker make the topic that groups live on."""
        request = FindCoordinatorRequest(coordinator_keys=["bench"])
        while True:
            reply = await self.place(0).ask(request, FindCoordinatorResponse, 30.0)
            if reply.coordinators[0].error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.1)

    def next_correlation_id(self) -> int:
        return next(self._correlation_ids) & 0x7FFF_FFFF


class Place:
    """One member's seat at a shared connection."""

    __slots__ = ("_channel", "_wire")

    def __init__(self, wire: Wire, channel: Channel) -> None:
        self._wire = wire
        self._channel = channel

    def frame(self, request: Message) -> bytearray:
        """The request without its length, ready for `ask_again`."""
        version, _ = _VERSIONS[type(request)]
        return encode_request(request, version, self._wire.next_correlation_id(), _CLIENT_ID)[_LENGTH_BYTES:]

    async def ask(self, request: Message, response: type[M], timeout_s: float) -> M:
        version, expected = _VERSIONS[type(request)]
        assert response is expected, f"{type(request).__name__} is not answered by {response.__name__}"
        return self.read(response, version, await self._channel.request(self.frame(request), timeout_s=timeout_s))

    async def ask_again(self, frame: bytearray, request: type[Message], response: type[M], timeout_s: float) -> M:
        """The same request as before, encoded once."""
        _CORRELATION_ID.pack_into(frame, _CORRELATION_ID_AT, self._wire.next_correlation_id())
        version, _ = _VERSIONS[request]
        return self.read(response, version, await self._channel.request(frame, timeout_s=timeout_s))

    @staticmethod
    def read(response: type[M], version: int, reply: memoryview) -> M:
        return decode(response, reply, version, response_body(response, reply, version))
