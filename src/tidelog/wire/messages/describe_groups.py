"""DescribeGroups (15), v0-6. Shows the state and members of classic groups."""

from tidelog.wire.declare import Bool, Bytes, Int16, Int32, Message, String, Struct, at, message, struct


@message(api=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
    groups: list[String] = at("0+")
    include_authorized_operations: Bool = at("3+", default=False)


@struct
class DescribedGroupMember(Struct):
    member_id: String = at("0+")
    group_instance_id: String | None = at("4+", default=None, nullable="4+", ignorable=True)
    client_id: String = at("0+")
    client_host: String = at("0+")
    member_metadata: Bytes = at("0+")
    member_assignment: Bytes = at("0+")


@struct
class DescribedGroup(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("6+", default=None, nullable="6+")
    group_id: String = at("0+")
    group_state: String = at("0+")
    protocol_type: String = at("0+")
    protocol_data: String = at("0+")
    members: list[DescribedGroupMember] = at("0+")
    authorized_operations: Int32 = at("3+", default=-(2**31))


@message(api=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = at("0+")
