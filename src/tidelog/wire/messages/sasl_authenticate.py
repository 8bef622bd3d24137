"""SaslAuthenticate (36), v0-2. Carries one SASL token each way."""

from tidelog.wire.declare import Bytes, Int16, Int64, Message, String, at, message


@message(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes = at("0+")


@message(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    auth_bytes: Bytes = at("0+")
    session_lifetime_ms: Int64 = at("1+", default=0, ignorable=True)
