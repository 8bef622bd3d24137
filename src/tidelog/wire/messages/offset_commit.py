"""OffsetCommit (8), v2-10. A group member stores how far it has read."""

from tidelog.wire.declare import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, at, message, struct


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = at("0+")
    committed_offset: Int64 = at("0+")
    committed_leader_epoch: Int32 = at("6+", default=-1, ignorable=True)
    committed_metadata: String | None = at("0+", nullable="0+")


@struct
class OffsetCommitRequestTopic(Struct):
    name: String = at("0-9", default="", ignorable=True)
    topic_id: Uuid = at("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = at("0+")


@message(api=8, versions="2-10", flexible="8+")
class OffsetCommitRequest(Message):
    group_id: String = at("0+")
    generation_id_or_member_epoch: Int32 = at("1+", default=-1, ignorable=True)
    member_id: String = at("1+", ignorable=True)
    group_instance_id: String | None = at("7+", default=None, nullable="7+")
    retention_time_ms: Int64 = at("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = at("0+")


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@struct
class OffsetCommitResponseTopic(Struct):
    name: String = at("0-9", default="", ignorable=True)
    topic_id: Uuid = at("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = at("0+")


@message(api=8, versions="2-10", flexible="8+")
class OffsetCommitResponse(Message):
    throttle_time_ms: Int32 = at("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = at("0+")
