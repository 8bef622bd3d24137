"""OffsetFetch (9), v1-10. Asks how far groups have read."""

from tidelog.wire.declare import (
    EMPTY,
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    at,
    message,
    struct,
)


@struct
class OffsetFetchRequestTopic(Struct):
    name: String = at("0-7", default="")
    partition_indexes: list[Int32] = at("0-7", default=EMPTY)


@struct
class OffsetFetchRequestTopics(Struct):
    name: String = at("8-9", default="", ignorable=True)
    topic_id: Uuid = at("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32] = at("8+", default=EMPTY)


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: String = at("8+", default="")
    member_id: String | None = at("9+", default=None, nullable="9+", ignorable=True)
    member_epoch: Int32 = at("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = at("8+", default=EMPTY, nullable="8+")


@message(api=9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Message):
    group_id: String = at("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = at("0-7", default=EMPTY, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = at("8+", default=EMPTY)
    require_stable: Bool = at("7+", default=False)


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = at("0-7", default=0)
    committed_offset: Int64 = at("0-7", default=0)
    committed_leader_epoch: Int32 = at("5-7", default=-1, ignorable=True)
    metadata: String | None = at("0-7", default="", nullable="0-7")
    error_code: Int16 = at("0-7", default=0)


@struct
class OffsetFetchResponseTopic(Struct):
    name: String = at("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = at("0-7", default=EMPTY)


@struct
class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = at("8+", default=0)
    committed_offset: Int64 = at("8+", default=0)
    committed_leader_epoch: Int32 = at("8+", default=-1, ignorable=True)
    metadata: String | None = at("8+", default="", nullable="8+")
    error_code: Int16 = at("8+", default=0)


@struct
class OffsetFetchResponseTopics(Struct):
    name: String = at("8-9", default="", ignorable=True)
    topic_id: Uuid = at("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = at("8+", default=EMPTY)


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: String = at("8+", default="")
    topics: list[OffsetFetchResponseTopics] = at("8+", default=EMPTY)
    error_code: Int16 = at("8+", default=0)


@message(api=9, versions="1-10", flexible="6+")
class OffsetFetchResponse(Message):
    throttle_time_ms: Int32 = at("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = at("0-7", default=EMPTY)
    error_code: Int16 = at("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = at("8+", default=EMPTY)
