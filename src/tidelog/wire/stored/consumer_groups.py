"""Records of groups of the new protocol on `__consumer_offsets`."""

from tidelog.wire.declare import EMPTY, Bytes, Int8, Int32, Message, String, Struct, Uuid, at, message, struct


@message(versions="3", flexible="none")
class ConsumerGroupMetadataKey(Message):
    group_id: String = at("3")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    epoch: Int32 = at("0+")


@message(versions="4", flexible="none")
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: String = at("4")


@struct
class PartitionMetadata(Struct):
    partition: Int32 = at("0+")
    racks: list[String] = at("0+")


@struct
class TopicMetadata(Struct):
    topic_id: Uuid = at("0+")
    topic_name: String = at("0+")
    num_partitions: Int32 = at("0+")
    partition_metadata: list[PartitionMetadata] = at("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    topics: list[TopicMetadata] = at("0+")


@message(versions="5", flexible="none")
class ConsumerGroupMemberMetadataKey(Message):
    group_id: String = at("5")
    member_id: String = at("5")


@struct
class ClassicProtocol(Struct):
    name: String = at("0+")
    metadata: Bytes = at("0+")


@struct
class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = at("0+")
    supported_protocols: list[ClassicProtocol] = at("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: String | None = at("0+", nullable="0+")
    rack_id: String | None = at("0+", nullable="0+")
    client_id: String = at("0+")
    client_host: String = at("0+")
    subscribed_topic_names: list[String] = at("0+")
    subscribed_topic_regex: String | None = at("0+", nullable="0+")
    rebalance_timeout_ms: Int32 = at("0+", default=-1)
    server_assignor: String | None = at("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = at("0+", default=EMPTY, nullable="0+", tagged="0+", tag=0)


@message(versions="6", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: String = at("6")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32 = at("0+")


@message(versions="7", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: String = at("7")
    member_id: String = at("7")


@struct
class TopicPartition(Struct):
    topic_id: Uuid = at("0+")
    partitions: list[Int32] = at("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[TopicPartition] = at("0+")


@message(versions="8", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: String = at("8")
    member_id: String = at("8")


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = at("0+")
    partitions: list[Int32] = at("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32 = at("0+")
    previous_member_epoch: Int32 = at("0+")
    state: Int8 = at("0+")
    assigned_partitions: list[TopicPartitions] = at("0+")
    partitions_pending_revocation: list[TopicPartitions] = at("0+")
