"""One connection to one broker that speaks messages: it knows which version of each request the broker understands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeVar

import tidelog
from tidelog.client.authentication import authenticate
from tidelog.client.errors import AuthenticationFailed, BadReply, ConnectionLost, NotSupported, check, error_code
from tidelog.client.metrics import Counters
from tidelog.client.security import Security
from tidelog.client.throttling import Quiet, rest_s
from tidelog.client.versions import Offered, choose_version
from tidelog.errors import ErrorCode
from tidelog.net.channel import Channel, ChannelError, RequestTimedOut, TlsError
from tidelog.wire.codec import decode
from tidelog.wire.declare import Message
from tidelog.wire.errors import DecodeError, EncodeError
from tidelog.wire.headers import encode_request, response_body
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from tidelog.client.config import ClientConfig
    from tidelog.net.address import Address

M = TypeVar("M", bound=Message)

_LENGTH_BYTES = 4
_CORRELATION_MASK = 0x7FFF_FFFF
# Long polls and pipelined produce requests are bounded by their own senders; this only stops a runaway.
_IN_FLIGHT_MAX = 64
# A session is renewed before it is over, by a margin for clocks and for requests that are on their way.
_SESSION_SHARE = 0.85


class Connection:
    """Requests are written in the order of the calls to `send`; several may be on their way at once."""

    def __init__(self, channel: Channel, config: ClientConfig, security: Security, counters: Counters) -> None:
        self.offered: Offered = {}
        self.features: dict[str, int] = {}
        """What the cluster as a whole has agreed on, such as transaction.version, and to which level."""
        self.features_epoch = -1
        self.supported_features: dict[str, tuple[int, int]] = {}
        """From which level to which this broker could do."""
        self._channel = channel
        self._config = config
        self._security = security
        self._counters = counters
        self._correlation_id = 0
        self._renew_at_s: float | None = None
        """On the loop's clock; None: the session lasts as long as the connection."""
        self._quiet = Quiet()
        self._turnstile = asyncio.Lock()
        self._in_line = 0

    @classmethod
    async def open(
        cls,
        address: Address,
        config: ClientConfig,
        security: Security | None = None,
        counters: Counters | None = None,
    ) -> Self:
        """Connects, agrees on versions and authenticates.

        ConnectionLost says why it did not come about; AuthenticationFailed, why it never will.
        """
        security = security or Security.of(config)
        counters = counters or Counters()
        try:
            connection = await cls._open(address, config, security, counters)
        except BaseException as error:
            counters.connections_failed += 1
            counters.authentications_failed += isinstance(error, AuthenticationFailed)
            raise
        counters.connections_opened += 1
        return connection

    @classmethod
    async def _open(cls, address: Address, config: ClientConfig, security: Security, counters: Counters) -> Self:
        try:
            channel = await Channel.connect(
                address.host,
                address.port,
                connect_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
                frame_bytes_max=config.receive_message_max_bytes,
                in_flight_max=_IN_FLIGHT_MAX,
                tls=security.tls,
            )
        except TlsError as error:
            raise AuthenticationFailed(str(error)) from error
        except ChannelError as error:
            raise ConnectionLost(str(error)) from error
        connection = cls(channel, config, security, counters)
        try:
            connection.offered = await connection._agree_on_versions()
            await connection._authenticate()
        except BaseException:
            await channel.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._channel.closed

    async def close(self) -> None:
        await self._channel.close()

    def abort(self) -> None:
        """Closes without waiting."""
        self._channel.abort()

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
        if self._channel.overdue:
            await self._channel.close()
            raise ConnectionLost(f"{self._channel.peer} does not answer what it was asked before")
        if self._renew_at_s is not None or self._quiet.begun or self._in_line:
            await self._wait_in_line()
        return await self._exchange(request, response, version, timeout_ms)

    async def send_unanswered(self, request: Message, *, limit: int | None = None) -> None:
        """For the one kind of request that brokers do not answer: producing with acks=0."""
        version = self.version_of(type(request), limit)
        if self._renew_at_s is not None or self._quiet.begun or self._in_line:
            await self._wait_in_line()
        frame = self._frame(request, version)
        self._counters.sending(request.API, len(frame))
        try:
            await self._channel.send_only(frame)
        except ChannelError as error:
            raise ConnectionLost(str(error)) from error

    async def _agree_on_versions(self) -> Offered:
        try:
            return await self._ask_versions()
        except ConnectionLost as error:
            raise ConnectionLost(
                f"{error} (before it said which versions it speaks: is it a listener for "
                f"{self._config.security_protocol}, as security_protocol says?)"
            ) from error

    async def _ask_versions(self) -> Offered:
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
        self.features_epoch = reply.finalized_features_epoch
        self.supported_features = {
            feature.name: (feature.min_version, feature.max_version) for feature in reply.supported_features
        }
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in reply.api_keys}

    async def _authenticate(self) -> None:
        identity = self._security.identity
        if identity is None:
            return

        async def handshake(request: SaslHandshakeRequest) -> SaslHandshakeResponse:
            version = self.version_of(SaslHandshakeRequest)
            if version < 1:
                raise NotSupported("the broker is too old to authenticate by messages: Kafka does since 1.0")
            return await self._exchange(request, SaslHandshakeResponse, version, None)

        async def exchange_token(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
            return await self._exchange(
                request, SaslAuthenticateResponse, self.version_of(SaslAuthenticateRequest), None
            )

        lifetime_ms = await authenticate(identity, handshake, exchange_token)
        self._counters.authentications += 1
        self._renew_at_s = None
        if lifetime_ms > 0:
            self._renew_at_s = asyncio.get_running_loop().time() + lifetime_ms / 1000 * _SESSION_SHARE

    async def _wait_in_line(self) -> None:
        """Until the session is a valid one and the broker wants to hear more. Everybody else who wants to send waits.

        The lock is fair, and nothing is awaited between leaving it and writing: requests keep their order.
        """
        self._in_line += 1
        try:
            async with self._turnstile:
                await self._keep_session()
                await self._keep_quiet()
        finally:
            self._in_line -= 1

    async def _keep_quiet(self) -> None:
        """For as long as the broker has asked for (KIP-219)."""
        clock = asyncio.get_running_loop().time
        while wait_s := self._quiet.wait_s(clock()):
            if await self._channel.closed_within(wait_s):
                return  # whoever sends is told

    async def _keep_session(self) -> None:
        """Authenticates again when it is time (KIP-368)."""
        if self._renew_at_s is None or asyncio.get_running_loop().time() < self._renew_at_s:
            return
        try:
            await self._authenticate()
        except BaseException as error:
            self._counters.authentications_failed += isinstance(error, AuthenticationFailed)
            # Half of an exchange leaves the connection fit for nothing else.
            await self._channel.close()
            raise

    async def _exchange(self, request: Message, response: type[M], version: int, timeout_ms: int | None) -> M:
        reply = _decoded(response, await self._reply(request, version, timeout_ms), version)
        throttle_time_ms = getattr(reply, "throttle_time_ms", 0)
        if throttle_time_ms > 0:
            self._counters.throttles += 1
            self._counters.throttled_ms += throttle_time_ms
            self._quiet.told(rest_s(request.API, version, throttle_time_ms), asyncio.get_running_loop().time())
        return reply

    async def _reply(self, request: Message, version: int, timeout_ms: int | None) -> memoryview:
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        frame = self._frame(request, version)
        counters = self._counters.sending(request.API, len(frame))
        clock = asyncio.get_running_loop().time
        began_s = clock()
        try:
            reply = await self._channel.request(frame, timeout_s=timeout_ms / 1000)
        except RequestTimedOut as error:
            # Replies come in order: whatever holds this one up holds up all behind it.
            await self._channel.close()
            raise ConnectionLost(str(error)) from error
        except ChannelError as error:
            raise ConnectionLost(str(error)) from error
        counters.answer(len(reply), clock() - began_s)
        return reply

    def _frame(self, request: Message, version: int) -> bytearray:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        try:
            frame = encode_request(request, version, self._correlation_id, self._config.client_id)
        except EncodeError as error:
            if version == type(request).VERSIONS.last:
                raise
            raise NotSupported(f"the broker is too old for this: {error}") from error
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
