"""ListPartitionReassignments (46), v0. Lists the moves that are under way."""

from tidelog.wire.declare import Int16, Int32, Message, String, Struct, at, message, struct


@struct
class ListPartitionReassignmentsTopics(Struct):
    name: String = at("0+")
    partition_indexes: list[Int32] = at("0+")


@message(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = at("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = at("0+", default=None, nullable="0+")


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = at("0+")
    replicas: list[Int32] = at("0+")
    adding_replicas: list[Int32] = at("0+")
    removing_replicas: list[Int32] = at("0+")


@struct
class OngoingTopicReassignment(Struct):
    name: String = at("0+")
    partitions: list[OngoingPartitionReassignment] = at("0+")


@message(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = at("0+")
