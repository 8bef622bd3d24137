"""Produce (0), v3-13. Appends one record batch to each of the partitions named."""

from tidelog.wire.declare import (
    EMPTY,
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Uuid,
    at,
    message,
    struct,
)


@struct
class PartitionProduceData(Struct):
    index: Int32 = at("0+")
    records: Records | None = at("0+", nullable="0+")


@struct
class TopicProduceData(Struct):
    name: String = at("0-12", default="", ignorable=True)
    topic_id: Uuid = at("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = at("0+")


@message(api=0, versions="3-13", flexible="9+")
class ProduceRequest(Message):
    transactional_id: String | None = at("3+", default=None, nullable="3+")
    acks: Int16 = at("0+")
    timeout_ms: Int32 = at("0+")
    topic_data: list[TopicProduceData] = at("0+")


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = at("8+", default=0)
    batch_index_error_message: String | None = at("8+", default=None, nullable="8+")


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = at("10+", default=-1)
    leader_epoch: Int32 = at("10+", default=-1)


@struct
class PartitionProduceResponse(Struct):
    index: Int32 = at("0+")
    error_code: Int16 = at("0+")
    base_offset: Int64 = at("0+")
    log_append_time_ms: Int64 = at("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = at("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = at("8+", default=EMPTY, ignorable=True)
    error_message: String | None = at("8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = at("10+", default=EMPTY, tagged="10+", tag=0)


@struct
class TopicProduceResponse(Struct):
    name: String = at("0-12", default="", ignorable=True)
    topic_id: Uuid = at("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = at("0+")


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = at("10+", default=0)
    host: String = at("10+", default="")
    port: Int32 = at("10+", default=0)
    rack: String | None = at("10+", default=None, nullable="10+")


@message(api=0, versions="3-13", flexible="9+")
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = at("0+")
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = at("10+", default=EMPTY, tagged="10+", tag=0)
