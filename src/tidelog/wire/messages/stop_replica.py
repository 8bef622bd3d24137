"""StopReplica (5), v0-4. The controller tells a broker to stop, and perhaps delete, replicas."""

from tidelog.wire.declare import EMPTY, Bool, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class StopReplicaPartitionV0(Struct):
    topic_name: String = at("0", default="")
    partition_index: Int32 = at("0", default=0)


@struct
class StopReplicaTopicV1(Struct):
    name: String = at("1-2", default="")
    partition_indexes: list[Int32] = at("1-2", default=EMPTY)


@struct
class StopReplicaPartitionState(Struct):
    partition_index: Int32 = at("3+", default=0)
    leader_epoch: Int32 = at("3+", default=-1)
    delete_partition: Bool = at("3+", default=False)


@struct
class StopReplicaTopicState(Struct):
    topic_name: String = at("3+", default="")
    partition_states: list[StopReplicaPartitionState] = at("3+", default=EMPTY)


@message(api=5, versions="0-4", flexible="2+")
class StopReplicaRequest(Message):
    controller_id: Int32 = at("0+")
    is_k_raft_controller: Bool = at("4+", default=False)
    controller_epoch: Int32 = at("0+")
    broker_epoch: Int64 = at("1+", default=-1, ignorable=True)
    delete_partitions: Bool = at("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = at("0", default=EMPTY)
    topics: list[StopReplicaTopicV1] = at("1-2", default=EMPTY)
    topic_states: list[StopReplicaTopicState] = at("3+", default=EMPTY)


@struct
class StopReplicaPartitionError(Struct):
    topic_name: String = at("0+")
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@message(api=5, versions="0-4", flexible="2+")
class StopReplicaResponse(Message):
    error_code: Int16 = at("0+")
    partition_errors: list[StopReplicaPartitionError] = at("0+")
