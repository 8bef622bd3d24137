"""AlterConfigs (33), v0-2. Replaces all settings of a resource at once; what is not named is reset."""

from tidelog.wire.declare import Bool, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class AlterableConfig(Struct):
    name: String = at("0+")
    value: String | None = at("0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")
    configs: list[AlterableConfig] = at("0+")


@message(api=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = at("0+")
    validate_only: Bool = at("0+")


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")


@message(api=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    responses: list[AlterConfigsResourceResponse] = at("0+")
