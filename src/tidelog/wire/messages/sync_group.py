"""SyncGroup (14), v0-5. The leader hands in the assignment of a classic group, and every member gets its share."""

from tidelog.wire.declare import Bytes, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: String = at("0+")
    assignment: Bytes = at("0+")


@message(api=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    group_id: String = at("0+")
    generation_id: Int32 = at("0+")
    member_id: String = at("0+")
    group_instance_id: String | None = at("3+", default=None, nullable="3+")
    protocol_type: String | None = at("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: String | None = at("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = at("0+")


@message(api=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    error_code: Int16 = at("0+")
    protocol_type: String | None = at("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: String | None = at("5+", default=None, nullable="5+", ignorable=True)
    assignment: Bytes = at("0+")
