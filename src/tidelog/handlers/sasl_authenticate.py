"""SaslAuthenticate (36), v0-2. Carries the tokens of a proof that SaslHandshake began."""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.security.broker_proof import ProofRefused
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(ctx: Context, req: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    session = ctx.session
    verifier = session.verifier
    if verifier is None:
        return _refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first, and this listener asks for none")
    try:
        token = verifier.answer(bytes(req.auth_bytes))
    except ProofRefused as refusal:
        session.verifier = None
        return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, str(refusal))
    if verifier.broker_id is not None:
        session.peer_broker, session.verifier = verifier.broker_id, None
    return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=token)


def _refused(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")


HANDLER = Handler(SaslAuthenticateRequest, SaslAuthenticateResponse, versions=(0, 2), handle=handle)
