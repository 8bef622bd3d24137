"""ElectLeaders (43), v0-2. Starts preferred or unclean leader elections."""

from tidelog.wire.declare import Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class TopicPartitions(Struct):
    topic: String = at("0+")
    partitions: list[Int32] = at("0+")


@message(api=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    election_type: Int8 = at("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = at("0+", nullable="0+")
    timeout_ms: Int32 = at("0+", default=60000)


@struct
class PartitionResult(Struct):
    partition_id: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")


@struct
class ReplicaElectionResult(Struct):
    topic: String = at("0+")
    partition_result: list[PartitionResult] = at("0+")


@message(api=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = at("0+")
