"""DeleteAcls (31), v1-3. Removes the access rules that match filters."""

from tidelog.wire.declare import Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = at("0+")
    resource_name_filter: String | None = at("0+", nullable="0+")
    pattern_type_filter: Int8 = at("1+", default=3)
    principal_filter: String | None = at("0+", nullable="0+")
    host_filter: String | None = at("0+", nullable="0+")
    operation: Int8 = at("0+")
    permission_type: Int8 = at("0+")


@message(api=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter] = at("0+")


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")
    pattern_type: Int8 = at("1+", default=3)
    principal: String = at("0+")
    host: String = at("0+")
    operation: Int8 = at("0+")
    permission_type: Int8 = at("0+")


@struct
class DeleteAclsFilterResult(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = at("0+")


@message(api=31, versions="1-3", flexible="2+")
class DeleteAclsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    filter_results: list[DeleteAclsFilterResult] = at("0+")
