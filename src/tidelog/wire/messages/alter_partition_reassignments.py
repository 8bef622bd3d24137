"""AlterPartitionReassignments (45), v0-1. Starts or cancels moving partitions to other brokers."""

from tidelog.wire.declare import Bool, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class ReassignablePartition(Struct):
    partition_index: Int32 = at("0+")
    replicas: list[Int32] | None = at("0+", default=None, nullable="0+")


@struct
class ReassignableTopic(Struct):
    name: String = at("0+")
    partitions: list[ReassignablePartition] = at("0+")


@message(api=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = at("0+", default=60000)
    allow_replication_factor_change: Bool = at("1+", default=True)
    topics: list[ReassignableTopic] = at("0+")


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")


@struct
class ReassignableTopicResponse(Struct):
    name: String = at("0+")
    partitions: list[ReassignablePartitionResponse] = at("0+")


@message(api=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    allow_replication_factor_change: Bool = at("1+", default=True, ignorable=True)
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = at("0+")
