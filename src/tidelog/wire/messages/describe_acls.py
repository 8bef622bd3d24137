"""DescribeAcls (29), v1-3. Lists access rules that match a filter."""

from tidelog.wire.declare import Int8, Int16, Int32, Message, String, Struct, at, message, struct


@message(api=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Message):
    resource_type_filter: Int8 = at("0+")
    resource_name_filter: String | None = at("0+", nullable="0+")
    pattern_type_filter: Int8 = at("1+", default=3)
    principal_filter: String | None = at("0+", nullable="0+")
    host_filter: String | None = at("0+", nullable="0+")
    operation: Int8 = at("0+")
    permission_type: Int8 = at("0+")


@struct
class AclDescription(Struct):
    principal: String = at("0+")
    host: String = at("0+")
    operation: Int8 = at("0+")
    permission_type: Int8 = at("0+")


@struct
class DescribeAclsResource(Struct):
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")
    pattern_type: Int8 = at("1+", default=3)
    acls: list[AclDescription] = at("0+")


@message(api=29, versions="1-3", flexible="2+")
class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    resources: list[DescribeAclsResource] = at("0+")
