"""ControlledShutdown (7), v0-3. A broker that is about to stop asks the controller to move its leaderships."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@message(api=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest(Message):
    broker_id: Int32 = at("0+")
    broker_epoch: Int64 = at("2+", default=-1, ignorable=True)


@struct
class RemainingPartition(Struct):
    topic_name: String = at("0+")
    partition_index: Int32 = at("0+")


@message(api=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse(Message):
    error_code: Int16 = at("0+")
    remaining_partitions: list[RemainingPartition] = at("0+")
