"""OffsetDelete (47), v0. Deletes committed offsets of a group."""

from tidelog.wire.declare import Int16, Int32, Message, String, Struct, at, message, struct


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = at("0+")


@struct
class OffsetDeleteRequestTopic(Struct):
    name: String = at("0+")
    partitions: list[OffsetDeleteRequestPartition] = at("0+")


@message(api=47, versions="0", flexible="none")
class OffsetDeleteRequest(Message):
    group_id: String = at("0+")
    topics: list[OffsetDeleteRequestTopic] = at("0+")


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@struct
class OffsetDeleteResponseTopic(Struct):
    name: String = at("0+")
    partitions: list[OffsetDeleteResponsePartition] = at("0+")


@message(api=47, versions="0", flexible="none")
class OffsetDeleteResponse(Message):
    error_code: Int16 = at("0+")
    throttle_time_ms: Int32 = at("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = at("0+")
