"""Heartbeat (12), v0-4. A member of a classic group says that it is alive."""

from tidelog.wire.declare import Int16, Int32, Message, String, at, message


@message(api=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    group_id: String = at("0+")
    generation_id: Int32 = at("0+")
    member_id: String = at("0+")
    group_instance_id: String | None = at("3+", default=None, nullable="3+")


@message(api=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    error_code: Int16 = at("0+")
