"""DescribeTopicPartitions (75), v0. Metadata of topics in pages, for clusters with very many partitions."""

from tidelog.wire.declare import Bool, Int16, Int32, Message, String, Struct, Uuid, at, message, struct


@struct
class TopicRequest(Struct):
    name: String = at("0+")


@struct
class Cursor(Struct):
    topic_name: String = at("0+")
    partition_index: Int32 = at("0+")


@message(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest] = at("0+")
    response_partition_limit: Int32 = at("0+", default=2000)
    cursor: Cursor | None = at("0+", default=None, nullable="0+")


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = at("0+")
    partition_index: Int32 = at("0+")
    leader_id: Int32 = at("0+")
    leader_epoch: Int32 = at("0+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = at("0+")
    isr_nodes: list[Int32] = at("0+")
    eligible_leader_replicas: list[Int32] | None = at("0+", default=None, nullable="0+")
    last_known_elr: list[Int32] | None = at("0+", default=None, nullable="0+")
    offline_replicas: list[Int32] = at("0+", ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = at("0+")
    name: String | None = at("0+", nullable="0+")
    topic_id: Uuid = at("0+", ignorable=True)
    is_internal: Bool = at("0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = at("0+")
    topic_authorized_operations: Int32 = at("0+", default=-(2**31))


@struct
class CursorResponse(Struct):
    topic_name: String = at("0+")
    partition_index: Int32 = at("0+")


@message(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: Int32 = at("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = at("0+")
    next_cursor: CursorResponse | None = at("0+", default=None, nullable="0+")
