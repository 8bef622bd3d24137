"""OffsetForLeaderEpoch (23), v2-4. Tells where a leader epoch ended: how replicas and consumers detect divergence."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class OffsetForLeaderPartition(Struct):
    partition: Int32 = at("0+")
    current_leader_epoch: Int32 = at("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = at("0+")


@struct
class OffsetForLeaderTopic(Struct):
    topic: String = at("0+")
    partitions: list[OffsetForLeaderPartition] = at("0+")


@message(api=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    replica_id: Int32 = at("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = at("0+")


@struct
class EpochEndOffset(Struct):
    error_code: Int16 = at("0+")
    partition: Int32 = at("0+")
    leader_epoch: Int32 = at("1+", default=-1, ignorable=True)
    end_offset: Int64 = at("0+", default=-1)


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: String = at("0+")
    partitions: list[EpochEndOffset] = at("0+")


@message(api=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = at("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = at("0+")
