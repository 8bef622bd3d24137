"""What members of classic consumer groups say to each other, opaque to the coordinator."""

from tidelog.wire.declare import EMPTY, Bytes, Int32, Message, String, Struct, at, message, struct


@struct
class TopicPartition(Struct):
    topic: String = at("1+", default="")
    partitions: list[Int32] = at("1+", default=EMPTY)


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    topics: list[String] = at("0+")
    user_data: Bytes | None = at("0+", default=None, nullable="0+")
    owned_partitions: list[TopicPartition] = at("1+", default=EMPTY, ignorable=True)
    generation_id: Int32 = at("2+", default=-1, ignorable=True)
    rack_id: String | None = at("3+", default=None, nullable="3+", ignorable=True)


@struct
class AssignedTopic(Struct):
    topic: String = at("0+")
    partitions: list[Int32] = at("0+")


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[AssignedTopic] = at("0+")
    user_data: Bytes | None = at("0+", default=None, nullable="0+")
