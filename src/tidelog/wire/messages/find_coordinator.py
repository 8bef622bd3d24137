"""FindCoordinator (10), v0-6. Asks which broker coordinates a group or a transactional id."""

from tidelog.wire.declare import EMPTY, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@message(api=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    key: String = at("0-3", default="")
    key_type: Int8 = at("1+", default=0)
    coordinator_keys: list[String] = at("4+", default=EMPTY)


@struct
class Coordinator(Struct):
    key: String = at("4+", default="")
    node_id: Int32 = at("4+", default=0)
    host: String = at("4+", default="")
    port: Int32 = at("4+", default=0)
    error_code: Int16 = at("4+", default=0)
    error_message: String | None = at("4+", default="", nullable="4+", ignorable=True)


@message(api=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    error_code: Int16 = at("0-3", default=0)
    error_message: String | None = at("1-3", default="", nullable="1-3", ignorable=True)
    node_id: Int32 = at("0-3", default=0)
    host: String = at("0-3", default="")
    port: Int32 = at("0-3", default=0)
    coordinators: list[Coordinator] = at("4+", default=EMPTY)
