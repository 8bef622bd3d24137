"""LeaveGroup (13), v0-5. Members leave a classic group."""

from tidelog.wire.declare import EMPTY, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class MemberIdentity(Struct):
    member_id: String = at("3+", default="")
    group_instance_id: String | None = at("3+", default=None, nullable="3+")
    reason: String | None = at("5+", default=None, nullable="5+", ignorable=True)


@message(api=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    group_id: String = at("0+")
    member_id: String = at("0-2", default="")
    members: list[MemberIdentity] = at("3+", default=EMPTY)


@struct
class MemberResponse(Struct):
    member_id: String = at("3+", default="")
    group_instance_id: String | None = at("3+", default="", nullable="3+")
    error_code: Int16 = at("3+", default=0)


@message(api=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Message):
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    error_code: Int16 = at("0+")
    members: list[MemberResponse] = at("3+", default=EMPTY)
