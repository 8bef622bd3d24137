"""SaslHandshake (17), v0-1. Chooses the SASL mechanism of a connection."""

from tidelog.wire.declare import Int16, Message, String, at, message


@message(api=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Message):
    mechanism: String = at("0+")


@message(api=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Message):
    error_code: Int16 = at("0+")
    mechanisms: list[String] = at("0+")
