"""CreatePartitions (37), v0-3. Adds partitions to topics."""

from tidelog.wire.declare import Bool, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = at("0+")


@struct
class CreatePartitionsTopic(Struct):
    name: String = at("0+")
    count: Int32 = at("0+")
    assignments: list[CreatePartitionsAssignment] | None = at("0+", nullable="0+")


@message(api=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = at("0+")
    timeout_ms: Int32 = at("0+")
    validate_only: Bool = at("0+")


@struct
class CreatePartitionsTopicResult(Struct):
    name: String = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", default=None, nullable="0+")


@message(api=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    results: list[CreatePartitionsTopicResult] = at("0+")
