"""Tells a broker who the client is, over SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client.errors import AuthenticationFailed, error_code
from tidelog.errors import ErrorCode
from tidelog.security.exchange import ExchangeFailed
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.client.security import Identity

_ROUNDS_MAX = 8


async def authenticate(
    identity: Identity,
    handshake: Callable[[SaslHandshakeRequest], Awaitable[SaslHandshakeResponse]],
    exchange_token: Callable[[SaslAuthenticateRequest], Awaitable[SaslAuthenticateResponse]],
) -> int:
    """Gives for how many milliseconds the broker believes it; 0: for as long as the connection lasts."""
    who = f"user {identity.username!r} with {identity.mechanism}"
    offered = await handshake(SaslHandshakeRequest(mechanism=identity.mechanism))
    if error_code(offered.error_code) == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"{who}: the broker takes {', '.join(offered.mechanisms) or 'no mechanism'} here; set sasl_mechanism to "
            "one of them"
        )
    if offered.error_code:
        raise AuthenticationFailed(
            f"{who}: the broker refuses with {error_code(offered.error_code).name}; does its listener use SASL, as "
            "security_protocol says?"
        )
    exchange = identity.exchange()
    token = exchange.begin()
    for _ in range(_ROUNDS_MAX):
        reply = await exchange_token(SaslAuthenticateRequest(auth_bytes=token))
        if reply.error_code:
            reason = reply.error_message or error_code(reply.error_code).name
            raise AuthenticationFailed(f"{who}: {reason}; check sasl_username and sasl_password")
        try:
            token = exchange.answer(bytes(reply.auth_bytes))
        except ExchangeFailed as error:
            raise AuthenticationFailed(f"{who}: {error}") from error
        if exchange.done:
            return reply.session_lifetime_ms
    raise AuthenticationFailed(f"{who}: the exchange does not come to an end")
