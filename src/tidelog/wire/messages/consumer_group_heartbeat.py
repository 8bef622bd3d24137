"""ConsumerGroupHeartbeat (68), v0-1. The whole of the new group protocol: join, keep alive, reconcile, leave."""

from tidelog.wire.declare import Int16, Int32, Message, String, Struct, Uuid, at, message, struct


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = at("0+")
    partitions: list[Int32] = at("0+")


@message(api=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    group_id: String = at("0+")
    member_id: String = at("0+")
    member_epoch: Int32 = at("0+")
    instance_id: String | None = at("0+", default=None, nullable="0+")
    rack_id: String | None = at("0+", default=None, nullable="0+")
    rebalance_timeout_ms: Int32 = at("0+", default=-1)
    subscribed_topic_names: list[String] | None = at("0+", default=None, nullable="0+")
    subscribed_topic_regex: String | None = at("1+", default=None, nullable="1+")
    server_assignor: String | None = at("0+", default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = at("0+", default=None, nullable="0+")


@struct
class TopicPartitionsResponse(Struct):
    topic_id: Uuid = at("0+")
    partitions: list[Int32] = at("0+")


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitionsResponse] = at("0+")


@message(api=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", default=None, nullable="0+")
    member_id: String | None = at("0+", default=None, nullable="0+")
    member_epoch: Int32 = at("0+")
    heartbeat_interval_ms: Int32 = at("0+")
    assignment: Assignment | None = at("0+", default=None, nullable="0+")
