"""JoinGroup (11), v0-9. A member enters a rebalance of a classic group."""

from tidelog.wire.declare import Bool, Bytes, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class JoinGroupRequestProtocol(Struct):
    name: String = at("0+")
    metadata: Bytes = at("0+")


@message(api=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    group_id: String = at("0+")
    session_timeout_ms: Int32 = at("0+")
    rebalance_timeout_ms: Int32 = at("1+", default=-1, ignorable=True)
    member_id: String = at("0+")
    group_instance_id: String | None = at("5+", default=None, nullable="5+")
    protocol_type: String = at("0+")
    protocols: list[JoinGroupRequestProtocol] = at("0+")
    reason: String | None = at("8+", default=None, nullable="8+", ignorable=True)


@struct
class JoinGroupResponseMember(Struct):
    member_id: String = at("0+")
    group_instance_id: String | None = at("5+", default=None, nullable="5+", ignorable=True)
    metadata: Bytes = at("0+")


@message(api=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    throttle_time_ms: Int32 = at("2+", default=0, ignorable=True)
    error_code: Int16 = at("0+")
    generation_id: Int32 = at("0+", default=-1)
    protocol_type: String | None = at("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: String | None = at("0+", nullable="7+")
    leader: String = at("0+")
    skip_assignment: Bool = at("9+", default=False)
    member_id: String = at("0+")
    members: list[JoinGroupResponseMember] = at("0+")
