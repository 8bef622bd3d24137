"""Fetch (1), v4-18. Reads record batches from partitions, waiting for enough of them; also how followers replicate."""

from tidelog.wire.declare import (
    EMPTY,
    ZERO_UUID,
    Int8,
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
class ReplicaState(Struct):
    replica_id: Int32 = at("15+", default=-1)
    replica_epoch: Int64 = at("15+", default=-1)


@struct
class FetchPartition(Struct):
    partition: Int32 = at("0+")
    current_leader_epoch: Int32 = at("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = at("0+")
    last_fetched_epoch: Int32 = at("12+", default=-1)
    log_start_offset: Int64 = at("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = at("0+")
    replica_directory_id: Uuid = at("17+", default=ZERO_UUID, tagged="17+", tag=0, ignorable=True)
    high_watermark: Int64 = at("18+", default=2**63 - 1, tagged="18+", tag=1, ignorable=True)


@struct
class FetchTopic(Struct):
    topic: String = at("0-12", default="", ignorable=True)
    topic_id: Uuid = at("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = at("0+")


@struct
class ForgottenTopic(Struct):
    topic: String = at("7-12", default="", ignorable=True)
    topic_id: Uuid = at("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32] = at("7+", default=EMPTY)


@message(api=1, versions="4-18", flexible="12+")
class FetchRequest(Message):
    cluster_id: String | None = at("12+", default=None, nullable="12+", tagged="12+", tag=0, ignorable=True)
    replica_id: Int32 = at("0-14", default=-1)
    replica_state: ReplicaState = at("15+", default=EMPTY, tagged="15+", tag=1)
    max_wait_ms: Int32 = at("0+")
    min_bytes: Int32 = at("0+")
    max_bytes: Int32 = at("3+", default=2**31 - 1, ignorable=True)
    isolation_level: Int8 = at("4+", default=0, ignorable=True)
    session_id: Int32 = at("7+", default=0, ignorable=True)
    session_epoch: Int32 = at("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = at("0+")
    forgotten_topics_data: list[ForgottenTopic] = at("7+", default=EMPTY)
    rack_id: String = at("11+", default="", ignorable=True)


@struct
class EpochEndOffset(Struct):
    epoch: Int32 = at("12+", default=-1)
    end_offset: Int64 = at("12+", default=-1)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = at("12+", default=-1)
    leader_epoch: Int32 = at("12+", default=-1)


@struct
class SnapshotId(Struct):
    end_offset: Int64 = at("0+", default=-1)
    epoch: Int32 = at("0+", default=-1)


@struct
class AbortedTransaction(Struct):
    producer_id: Int64 = at("4+")
    first_offset: Int64 = at("4+")


@struct
class PartitionData(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")
    high_watermark: Int64 = at("0+")
    last_stable_offset: Int64 = at("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = at("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = at("12+", default=EMPTY, tagged="12+", tag=0)
    current_leader: LeaderIdAndEpoch = at("12+", default=EMPTY, tagged="12+", tag=1)
    snapshot_id: SnapshotId = at("12+", default=EMPTY, tagged="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = at("4+", nullable="4+", ignorable=True)
    preferred_read_replica: Int32 = at("11+", default=-1)
    records: Records | None = at("0+", nullable="0+")


@struct
class FetchableTopicResponse(Struct):
    topic: String = at("0-12", default="", ignorable=True)
    topic_id: Uuid = at("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = at("0+")


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = at("16+", default=0)
    host: String = at("16+", default="")
    port: Int32 = at("16+", default=0)
    rack: String | None = at("16+", default=None, nullable="16+")


@message(api=1, versions="4-18", flexible="12+")
class FetchResponse(Message):
    throttle_time_ms: Int32 = at("1+", ignorable=True)
    error_code: Int16 = at("7+", default=0, ignorable=True)
    session_id: Int32 = at("7+", default=0)
    responses: list[FetchableTopicResponse] = at("0+")
    node_endpoints: list[NodeEndpoint] = at("16+", default=EMPTY, tagged="16+", tag=0)
