"""SaslHandshake (17), v0-1. Chooses how the peer proves who it is. So far only brokers of the cluster can."""

from __future__ import annotations

import secrets

from tidelog.errors import ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.security.broker_proof import MECHANISM, NONCE_BYTES, Verifier
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: Context, req: SaslHandshakeRequest) -> SaslHandshakeResponse:
    ctx.session.verifier = None
    if req.mechanism != MECHANISM:
        # As Kafka answers on a listener without SASL.
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    ctx.session.verifier = Verifier(ctx.services.cluster_secret, secrets.token_bytes(NONCE_BYTES))
    return SaslHandshakeResponse(error_code=0, mechanisms=[MECHANISM])


HANDLER = Handler(SaslHandshakeRequest, SaslHandshakeResponse, versions=(0, 1), handle=handle)
