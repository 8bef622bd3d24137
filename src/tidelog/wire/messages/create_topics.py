"""CreateTopics (19), v2-7. Creates topics."""

from tidelog.wire.declare import (
    EMPTY,
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    at,
    message,
    struct,
)


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = at("0+")
    broker_ids: list[Int32] = at("0+")


@struct
class CreatableTopicConfig(Struct):
    name: String = at("0+")
    value: String | None = at("0+", nullable="0+")


@struct
class CreatableTopic(Struct):
    name: String = at("0+")
    num_partitions: Int32 = at("0+")
    replication_factor: Int16 = at("0+")
    assignments: list[CreatableReplicaAssignment] = at("0+")
    configs: list[CreatableTopicConfig] = at("0+")


@message(api=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = at("0+")
    timeout_ms: Int32 = at("0+", default=60000)
    validate_only: Bool = at("1+", default=False)


@struct
class CreatableTopicConfigs(Struct):
    name: String = at("5+", default="")
    value: String | None = at("5+", default="", nullable="5+")
    read_only: Bool = at("5+", default=False)
    config_source: Int8 = at("5+", default=-1, ignorable=True)
    is_sensitive: Bool = at("5+", default=False)


@struct
class CreatableTopicResult(Struct):
    name: String = at("0+")
    topic_id: Uuid = at("7+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = at("0+")
    error_message: String | None = at("1+", nullable="0+", ignorable=True)
    topic_config_error_code: Int16 = at("5+", default=0, tagged="5+", tag=0, ignorable=True)
    num_partitions: Int32 = at("5+", default=-1, ignorable=True)
    replication_factor: Int16 = at("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = at("5+", default=EMPTY, nullable="5+", ignorable=True)


@message(api=19, versions="2-7", flexible="5+")
class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = at("2+", ignorable=True)
    topics: list[CreatableTopicResult] = at("0+")
