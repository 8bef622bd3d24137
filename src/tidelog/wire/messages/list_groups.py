"""ListGroups (16), v0-5. Lists the groups that a broker coordinates."""

from tidelog.wire.declare import EMPTY, Int16, Int32, Message, String, Struct, at, message, struct


@message(api=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    states_filter: list[String] = at("4+", default=EMPTY)
    types_filter: list[String] = at("5+", default=EMPTY)


@struct
class ListedGroup(Struct):
    group_id: String = at("0+")
    protocol_type: String = at("0+")
    group_state: String = at("4+", default="", ignorable=True)
    group_type: String = at("5+", default="", ignorable=True)


@message(api=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    error_code: Int16 = at("0+")
    groups: list[ListedGroup] = at("0+")
