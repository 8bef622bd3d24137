"""DeleteRecords (21), v0-2. Moves the start of partitions up, so that older records are gone."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class DeleteRecordsPartition(Struct):
    partition_index: Int32 = at("0+")
    offset: Int64 = at("0+")


@struct
class DeleteRecordsTopic(Struct):
    name: String = at("0+")
    partitions: list[DeleteRecordsPartition] = at("0+")


@message(api=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = at("0+")
    timeout_ms: Int32 = at("0+")


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = at("0+")
    low_watermark: Int64 = at("0+")
    error_code: Int16 = at("0+")


@struct
class DeleteRecordsTopicResult(Struct):
    name: String = at("0+")
    partitions: list[DeleteRecordsPartitionResult] = at("0+")


@message(api=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    topics: list[DeleteRecordsTopicResult] = at("0+")
