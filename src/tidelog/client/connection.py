"""One connection to one broker that speaks messages: it knows which version of each request the broker understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

import tidelog
from tidelog.client.errors import BadReply, ConnectionLost, check, error_code
from tidelog.client.versions import Offered, choose_version
from tidelog.errors import ErrorCode
from tidelog.net.channel import Channel, ChannelError, RequestTimedOut
from tidelog.wire.codec import decode
from tidelog.wire.declare import Message
from tidelog.wire.errors import DecodeError
from tidelog.wire.headers import encode_request, response_body
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from tidelog.client.config import ClientConfig
    from tidelog.net.address import Address

M = TypeVar("M", bound=Message)

_LENGTH_BYTES = 4
_CORRELATION_MASK = 0x7FFF_FFFF
# Long polls and pipelined produce requests are bounded by their own senders; this only stops a runaway.
_IN_FLIGHT_MAX = 64


class Connection:
    """Requests are written in the order of the calls to `send`; several may be on their way at once."""

    def __init__(self, channel: Channel, config: ClientConfig) -> None:
        self.offered: Offered = {}
        self.features: dict[str, int] = {}
        """What the cluster as a whole has agreed on, such as transaction.version, and to which level."""
        self._channel = channel
        self._config = config
        self._correlation_id = 0

    @classmethod
    async def open(cls, address: Address, config: ClientConfig) -> Self:
        """Connects and agrees on versions; ConnectionLost says why it did not come about."""
        try:
            channel = await Channel.connect(
                address.host,
                address.port,
                connect_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
                frame_bytes_max=config.receive_message_max_bytes,
                in_flight_max=_IN_FLIGHT_MAX,
            )
        except ChannelError as error:
            raise ConnectionLost(str(error)) from error
        connection = cls(channel, config)
        try:
            connection.offered = await connection._handshake()
        except BaseException:
            await channel.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._channel.closed

    async def close(self) -> None:
        await self._channel.close()

    def version_of(self, request: type[Message], limit: int | None = None) -> int:
        """The version that `send` will use."""
        return choose_version(self.offered, request, limit)

    async def send(
        self, request: Message, response: type[M], *, limit: int | None = None, timeout_ms: int | None = None
    ) -> M:
        """Sends `request` in the newest version that both sides know (and `limit` allows) and gives the answer.

        ConnectionLost: there was no answer, but the request may have been carried out.
        """
        version = self.version_of(type(request), limit)
        return await self._exchange(request, response, version, timeout_ms)

    async def send_unanswered(self, request: Message, *, limit: int | None = None) -> None:
        """For the one kind of request that brokers do not answer: producing with acks=0."""
        version = self.version_of(type(request), limit)
        try:
            await self._channel.send_only(self._frame(request, version))
        except ChannelError as error:
            raise ConnectionLost(str(error)) from error

    async def _handshake(self) -> Offered:
        """Opens with the newest version; a broker that does not know it answers in version 0 with the ones it does."""
        request = ApiVersionsRequest(client_software_name="tidelog-python", client_software_version=tidelog.__version__)
        newest = ApiVersionsRequest.VERSIONS.last
        frame = await self._reply(request, newest, None)
        # The error code comes first in every version, so it can be read before the layout is known.
        if len(frame) < 6:
            raise BadReply(f"{self._channel.peer} answered ApiVersions with {len(frame)} bytes: is it a Kafka broker?")
        if error_code(int.from_bytes(frame[4:6], "big", signed=True)) == ErrorCode.UNSUPPORTED_VERSION:
            version = _version_after_refusal(frame)
            reply = await self._exchange(request, ApiVersionsResponse, version, None)
        else:
            reply = _decoded(ApiVersionsResponse, frame, newest)
        check(reply.error_code, about="agreeing on versions")
        self.features = {feature.name: feature.max_version_level for feature in reply.finalized_features}
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in reply.api_keys}

    async def _exchange(self, request: Message, response: type[M], version: int, timeout_ms: int | None) -> M:
        return _decoded(response, await self._reply(request, version, timeout_ms), version)

    async def _reply(self, request: Message, version: int, timeout_ms: int | None) -> memoryview:
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            return await self._channel.request(self._frame(request, version), timeout_s=timeout_ms / 1000)
        except RequestTimedOut as error:
            # Replies come in order: whatever holds this one up holds up all behind it.
            await self._channel.close()
            raise ConnectionLost(str(error)) from error
        except ChannelError as error:
            raise ConnectionLost(str(error)) from error

    def _frame(self, request: Message, version: int) -> bytearray:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        frame = encode_request(request, version, self._correlation_id, self._config.client_id)
        del frame[:_LENGTH_BYTES]  # the channel writes its own
        return frame


def _version_after_refusal(frame: memoryview) -> int:
    """The refusal names the versions of ApiVersions itself; where it cannot be read, version 0 always works."""
    try:
        entries = _decoded(ApiVersionsResponse, frame, 0).api_keys
    except BadReply:
        return 0
    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in entries}
    return choose_version({ApiVersionsRequest.API: (0, 0), **offered}, ApiVersionsRequest)


def _decoded(response: type[M], frame: memoryview, version: int) -> M:
    try:
        return decode(response, frame, version, response_body(response, frame, version))
    except DecodeError as error:
        raise BadReply(f"the broker's answer cannot be read: {error}") from error
