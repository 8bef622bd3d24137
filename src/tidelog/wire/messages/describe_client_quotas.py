"""DescribeClientQuotas (48), v0-1. Shows quotas of users and clients."""

from tidelog.wire.declare import Bool, Float64, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class ComponentData(Struct):
    entity_type: String = at("0+")
    match_type: Int8 = at("0+")
    match: String | None = at("0+", nullable="0+")


@message(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = at("0+")
    strict: Bool = at("0+")


@struct
class EntityData(Struct):
    entity_type: String = at("0+")
    entity_name: String | None = at("0+", nullable="0+")


@struct
class ValueData(Struct):
    key: String = at("0+")
    value: Float64 = at("0+")


@struct
class EntryData(Struct):
    entity: list[EntityData] = at("0+")
    values: list[ValueData] = at("0+")


@message(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    entries: list[EntryData] | None = at("0+", nullable="0+")
