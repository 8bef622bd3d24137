"""ListConfigResources (74), v0-1. Lists the resources that can have settings."""

from tidelog.wire.declare import EMPTY, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@message(api=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Message):
    resource_types: list[Int8] = at("1+", default=EMPTY)


@struct
class ConfigResource(Struct):
    resource_name: String = at("0+")
    resource_type: Int8 = at("1+", default=16, ignorable=True)


@message(api=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    config_resources: list[ConfigResource] = at("0+")
