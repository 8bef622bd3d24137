"""CreateAcls (30), v1-3. Adds access rules."""

from tidelog.wire.declare import Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class AclCreation(Struct):
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")
    resource_pattern_type: Int8 = at("1+", default=3)
    principal: String = at("0+")
    host: String = at("0+")
    operation: Int8 = at("0+")
    permission_type: Int8 = at("0+")


@message(api=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Message):
    creations: list[AclCreation] = at("0+")


@struct
class AclCreationResult(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")


@message(api=30, versions="1-3", flexible="2+")
class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    results: list[AclCreationResult] = at("0+")
