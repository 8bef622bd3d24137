"""AlterClientQuotas (49), v0-1. Changes quotas of users and clients."""

from tidelog.wire.declare import Bool, Float64, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class EntityData(Struct):
    entity_type: String = at("0+")
    entity_name: String | None = at("0+", nullable="0+")


@struct
class OpData(Struct):
    key: String = at("0+")
    value: Float64 = at("0+")
    remove: Bool = at("0+")


@struct
class EntryData(Struct):
    entity: list[EntityData] = at("0+")
    ops: list[OpData] = at("0+")


@message(api=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    entries: list[EntryData] = at("0+")
    validate_only: Bool = at("0+")


@struct
class EntityDataResponse(Struct):
    entity_type: String = at("0+")
    entity_name: String | None = at("0+", nullable="0+")


@struct
class EntryDataResponse(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    entity: list[EntityDataResponse] = at("0+")


@message(api=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    entries: list[EntryDataResponse] = at("0+")
