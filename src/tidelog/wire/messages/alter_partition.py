"""AlterPartition (56), v2-3. A leader asks the controller to change in-sync replicas."""

from tidelog.wire.declare import EMPTY, Int8, Int16, Int32, Int64, Message, Struct, Uuid, at, message, struct


@struct
class BrokerState(Struct):
    broker_id: Int32 = at("3+", default=0)
    broker_epoch: Int64 = at("3+", default=-1)


@struct
class PartitionData(Struct):
    partition_index: Int32 = at("0+")
    leader_epoch: Int32 = at("0+")
    new_isr: list[Int32] = at("0-2", default=EMPTY)
    new_isr_with_epochs: list[BrokerState] = at("3+", default=EMPTY)
    leader_recovery_state: Int8 = at("1+", default=0)
    partition_epoch: Int32 = at("0+")


@struct
class TopicData(Struct):
    topic_id: Uuid = at("2+", ignorable=True)
    partitions: list[PartitionData] = at("0+")


@message(api=56, versions="2-3", flexible="0+")
class AlterPartitionRequest(Message):
    broker_id: Int32 = at("0+")
    broker_epoch: Int64 = at("0+", default=-1)
    topics: list[TopicData] = at("0+")


@struct
class PartitionDataResponse(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")
    leader_id: Int32 = at("0+")
    leader_epoch: Int32 = at("0+")
    isr: list[Int32] = at("0+")
    leader_recovery_state: Int8 = at("1+", default=0, ignorable=True)
    partition_epoch: Int32 = at("0+")


@struct
class TopicDataResponse(Struct):
    topic_id: Uuid = at("2+", ignorable=True)
    partitions: list[PartitionDataResponse] = at("0+")


@message(api=56, versions="2-3", flexible="0+")
class AlterPartitionResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    topics: list[TopicDataResponse] = at("0+")
