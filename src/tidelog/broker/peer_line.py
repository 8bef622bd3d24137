"""One connection to another broker of the cluster: opened when first needed, proved, and opened anew when it breaks.

Requests go out in the order of the calls, and replies come in that order too: what may be held up at the other end, as
a fetch is, needs a line of its own.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, TypeVar

from tidelog.errors import PeerUnreachable
from tidelog.net.channel import Channel, ChannelError
from tidelog.security.broker_proof import MECHANISM, NONCE_BYTES, Claimant, ProofRefused
from tidelog.wire.api_keys import api_name
from tidelog.wire.codec import decode
from tidelog.wire.declare import Message
from tidelog.wire.errors import DecodeError
from tidelog.wire.headers import encode_request, response_body
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.net.address import Address

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

_API_VERSIONS_VERSION = 3
_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 2
_LENGTH_BYTES = 4
_CORRELATION_MASK = 0x7FFF_FFFF
_IN_FLIGHT_MAX = 16


class PeerLine:
    def __init__(self, address: Address, local_id: int, secret: bytes, purpose: str, timeout_s: float) -> None:
        self.address = address
        self._local_id = local_id
        self._secret = secret
        self._client_id = f"broker-{local_id}-{purpose}"
        self._timeout_s = timeout_s
        self._channel: Channel | None = None
        self._half_open: Channel | None = None
        """Not proved yet."""
        self._offered: Mapping[int, tuple[int, int]] = {}
        self._opening = asyncio.Lock()  # whoever comes first opens it for all
        self._correlation_id = 0

    async def send(self, request: Message, response: type[M], *, timeout_s: float | None = None) -> M:
        """Raises PeerUnreachable: there was no answer, but the request may have been carried out."""
        try:
            if self._channel is None or self._channel.closed:
                async with self._opening:
                    if self._channel is None or self._channel.closed:
                        self._channel = await self._open()
            channel = self._channel
            return await self._exchange(channel, request, response, self._version_of(request), timeout_s)
        except (ChannelError, DecodeError, ProofRefused) as error:
            await self.close()
            raise PeerUnreachable(f"broker at {self.address}: {error}") from error

    async def close(self) -> None:
        """Fails what is outstanding, and opening too."""
        channels, self._channel, self._half_open = (self._channel, self._half_open), None, None
        for channel in channels:
            if channel is not None:
                await channel.close()

    def _version_of(self, request: Message) -> int:
        first, last = self._offered.get(request.API, (0, -1))
        version = min(last, request.VERSIONS.last)
        if version < first or version < request.VERSIONS.first:
            raise ChannelError(f"it does not offer {api_name(request.API)} in a version that this broker knows")
        return version

    async def _open(self) -> Channel:
        channel = await Channel.connect(
            self.address.host, self.address.port, connect_timeout_s=self._timeout_s, in_flight_max=_IN_FLIGHT_MAX
        )
        self._half_open = channel
        try:
            await self._agree(channel)
            await self._prove(channel)
        except BaseException:
            await channel.close()
            raise
        finally:
            self._half_open = None
        return channel

    async def _agree(self, channel: Channel) -> None:
        request = ApiVersionsRequest(client_software_name="tidelog-broker", client_software_version="1")
        reply = await self._exchange(channel, request, ApiVersionsResponse, _API_VERSIONS_VERSION)
        self._offered = {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}

    async def _prove(self, channel: Channel) -> None:
        hello = SaslHandshakeRequest(mechanism=MECHANISM)
        greeted = await self._exchange(channel, hello, SaslHandshakeResponse, _HANDSHAKE_VERSION)
        if greeted.error_code:
            raise ProofRefused("it takes no proofs of brokers: is it one of this cluster?")
        claimant = Claimant(self._secret, self._local_id, secrets.token_bytes(NONCE_BYTES))
        challenge = await self._authenticate(channel, claimant.claim())
        await self._authenticate(channel, claimant.prove(challenge))

    async def _authenticate(self, channel: Channel, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        reply = await self._exchange(channel, request, SaslAuthenticateResponse, _AUTHENTICATE_VERSION)
        if reply.error_code:
            raise ProofRefused(f"it refused this broker: {reply.error_message}")
        return bytes(reply.auth_bytes)

    async def _exchange(
        self, channel: Channel, request: Message, response: type[M], version: int, timeout_s: float | None = None
    ) -> M:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        frame = encode_request(request, version, self._correlation_id, self._client_id)
        del frame[:_LENGTH_BYTES]  # the channel writes its own
        reply = await channel.request(frame, timeout_s=timeout_s or self._timeout_s)
        return decode(response, reply, version, response_body(response, reply, version))
