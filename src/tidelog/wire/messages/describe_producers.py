"""DescribeProducers (61), v0. Shows which producers have written to partitions."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class TopicRequest(Struct):
    name: String = at("0+")
    partition_indexes: list[Int32] = at("0+")


@message(api=61, versions="0", flexible="0+")
class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = at("0+")


@struct
class ProducerState(Struct):
    producer_id: Int64 = at("0+")
    producer_epoch: Int32 = at("0+")
    last_sequence: Int32 = at("0+", default=-1)
    last_timestamp: Int64 = at("0+", default=-1)
    coordinator_epoch: Int32 = at("0+")
    current_txn_start_offset: Int64 = at("0+", default=-1)


@struct
class PartitionResponse(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = at("0+")


@struct
class TopicResponse(Struct):
    name: String = at("0+")
    partitions: list[PartitionResponse] = at("0+")


@message(api=61, versions="0", flexible="0+")
class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    topics: list[TopicResponse] = at("0+")
