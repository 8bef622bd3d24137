"""LeaderAndIsr (4), v0-7. The controller tells a broker which partitions it leads or follows."""

from tidelog.wire.declare import (
    EMPTY,
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    at,
    message,
    struct,
)


@struct
class LeaderAndIsrPartitionState(Struct):
    topic_name: String = at("0-1", default="", ignorable=True)
    partition_index: Int32 = at("0+")
    controller_epoch: Int32 = at("0+")
    leader: Int32 = at("0+")
    leader_epoch: Int32 = at("0+")
    isr: list[Int32] = at("0+")
    partition_epoch: Int32 = at("0+")
    replicas: list[Int32] = at("0+")
    adding_replicas: list[Int32] = at("3+", default=EMPTY, ignorable=True)
    removing_replicas: list[Int32] = at("3+", default=EMPTY, ignorable=True)
    is_new: Bool = at("1+", default=False, ignorable=True)
    leader_recovery_state: Int8 = at("6+", default=0)


@struct
class LeaderAndIsrTopicState(Struct):
    topic_name: String = at("2+", default="")
    topic_id: Uuid = at("5+", default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = at("2+", default=EMPTY)


@struct
class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32 = at("0+")
    host_name: String = at("0+")
    port: Int32 = at("0+")


@message(api=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest(Message):
    controller_id: Int32 = at("0+")
    is_k_raft_controller: Bool = at("7+", default=False)
    controller_epoch: Int32 = at("0+")
    broker_epoch: Int64 = at("2+", default=-1, ignorable=True)
    type: Int8 = at("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = at("0-1", default=EMPTY)
    topic_states: list[LeaderAndIsrTopicState] = at("2+", default=EMPTY)
    live_leaders: list[LeaderAndIsrLiveLeader] = at("0+")


@struct
class LeaderAndIsrPartitionError(Struct):
    topic_name: String = at("0-4", default="", ignorable=True)
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@struct
class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = at("5+", default=ZERO_UUID)
    partition_errors: list[LeaderAndIsrPartitionError] = at("5+", default=EMPTY)


@message(api=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse(Message):
    error_code: Int16 = at("0+")
    partition_errors: list[LeaderAndIsrPartitionError] = at("0-4", default=EMPTY)
    topics: list[LeaderAndIsrTopicError] = at("5+", default=EMPTY)
