"""UnregisterBroker (64), v0. Forgets a broker that will not come back."""

from tidelog.wire.declare import Int16, Int32, Message, String, at, message


@message(api=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Message):
    broker_id: Int32 = at("0+")


@message(api=64, versions="0", flexible="0+")
class UnregisterBrokerResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
