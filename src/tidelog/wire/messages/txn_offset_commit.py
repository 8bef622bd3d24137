"""TxnOffsetCommit (28), v0-5. Stores group offsets that count only once the transaction commits."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = at("0+")
    committed_offset: Int64 = at("0+")
    committed_leader_epoch: Int32 = at("2+", default=-1, ignorable=True)
    committed_metadata: String | None = at("0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: String = at("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = at("0+")


@message(api=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Message):
    transactional_id: String = at("0+")
    group_id: String = at("0+")
    producer_id: Int64 = at("0+")
    producer_epoch: Int16 = at("0+")
    generation_id: Int32 = at("3+", default=-1)
    member_id: String = at("3+", default="")
    group_instance_id: String | None = at("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = at("0+")


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: String = at("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = at("0+")


@message(api=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    topics: list[TxnOffsetCommitResponseTopic] = at("0+")
