"""ConsumerGroupDescribe (69), v0-1. Shows the state and members of groups of the new protocol."""

from tidelog.wire.declare import Bool, Int8, Int16, Int32, Message, String, Struct, Uuid, at, message, struct


@message(api=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[String] = at("0+")
    include_authorized_operations: Bool = at("0+")


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = at("0+")
    topic_name: String = at("0+")
    partitions: list[Int32] = at("0+")


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = at("0+")


@struct
class Member(Struct):
    member_id: String = at("0+")
    instance_id: String | None = at("0+", default=None, nullable="0+")
    rack_id: String | None = at("0+", default=None, nullable="0+")
    member_epoch: Int32 = at("0+")
    client_id: String = at("0+")
    client_host: String = at("0+")
    subscribed_topic_names: list[String] = at("0+")
    subscribed_topic_regex: String | None = at("0+", default=None, nullable="0+")
    assignment: Assignment = at("0+")
    target_assignment: Assignment = at("0+")
    member_type: Int8 = at("1+", default=-1, ignorable=True)


@struct
class DescribedGroup(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", default=None, nullable="0+")
    group_id: String = at("0+")
    group_state: String = at("0+")
    group_epoch: Int32 = at("0+")
    assignment_epoch: Int32 = at("0+")
    assignor_name: String = at("0+")
    members: list[Member] = at("0+")
    authorized_operations: Int32 = at("0+", default=-(2**31))


@message(api=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    groups: list[DescribedGroup] = at("0+")
