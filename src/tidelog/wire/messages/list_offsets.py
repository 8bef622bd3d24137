"""ListOffsets (2), v1-11. Finds offsets by timestamp, or by a mark: -1 end, -2 start, -3 largest timestamp."""

from tidelog.wire.declare import Int8, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class ListOffsetsPartition(Struct):
    partition_index: Int32 = at("0+")
    current_leader_epoch: Int32 = at("4+", default=-1, ignorable=True)
    timestamp: Int64 = at("0+")


@struct
class ListOffsetsTopic(Struct):
    name: String = at("0+")
    partitions: list[ListOffsetsPartition] = at("0+")


@message(api=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Message):
    replica_id: Int32 = at("0+")
    isolation_level: Int8 = at("2+", default=0)
    topics: list[ListOffsetsTopic] = at("0+")
    timeout_ms: Int32 = at("10+", default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")
    timestamp: Int64 = at("1+", default=-1)
    offset: Int64 = at("1+", default=-1)
    leader_epoch: Int32 = at("4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: String = at("0+")
    partitions: list[ListOffsetsPartitionResponse] = at("0+")


@message(api=2, versions="1-11", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: Int32 = at("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = at("0+")
