"""DeleteGroups (42), v0-2. Deletes groups that have no members."""

from tidelog.wire.declare import Int16, Int32, Message, String, Struct, at, message, struct


@message(api=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    groups_names: list[String] = at("0+")


@struct
class DeletableGroupResult(Struct):
    group_id: String = at("0+")
    error_code: Int16 = at("0+")


@message(api=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    results: list[DeletableGroupResult] = at("0+")
