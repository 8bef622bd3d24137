"""DeleteTopics (20), v1-6. Deletes topics, by name or by id."""

from tidelog.wire.declare import EMPTY, ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, at, message, struct


@struct
class DeleteTopicState(Struct):
    name: String | None = at("6+", default=None, nullable="6+")
    topic_id: Uuid = at("6+", default=ZERO_UUID)


@message(api=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = at("6+", default=EMPTY)
    topic_names: list[String] = at("0-5", default=EMPTY, ignorable=True)
    timeout_ms: Int32 = at("0+")


@struct
class DeletableTopicResult(Struct):
    name: String | None = at("0+", nullable="6+")
    topic_id: Uuid = at("6+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = at("0+")
    error_message: String | None = at("5+", default=None, nullable="5+", ignorable=True)


@message(api=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = at("1+", ignorable=True)
    responses: list[DeletableTopicResult] = at("0+")
