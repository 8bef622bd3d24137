"""UpdateMetadata (6), v0-8. The controller tells a broker what every broker should know of the cluster."""

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
class UpdateMetadataPartitionState(Struct):
    topic_name: String = at("0-4", default="", ignorable=True)
    partition_index: Int32 = at("0+")
    controller_epoch: Int32 = at("0+")
    leader: Int32 = at("0+")
    leader_epoch: Int32 = at("0+")
    isr: list[Int32] = at("0+")
    zk_version: Int32 = at("0+")
    replicas: list[Int32] = at("0+")
    offline_replicas: list[Int32] = at("4+", default=EMPTY, ignorable=True)


@struct
class UpdateMetadataTopicState(Struct):
    topic_name: String = at("5+", default="")
    topic_id: Uuid = at("7+", default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = at("5+", default=EMPTY)


@struct
class UpdateMetadataEndpoint(Struct):
    port: Int32 = at("1+", default=0)
    host: String = at("1+", default="")
    listener: String = at("3+", default="", ignorable=True)
    security_protocol: Int16 = at("1+", default=0)


@struct
class UpdateMetadataBroker(Struct):
    id: Int32 = at("0+")
    v0_host: String = at("0", default="", ignorable=True)
    v0_port: Int32 = at("0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = at("1+", default=EMPTY, ignorable=True)
    rack: String | None = at("2+", default="", nullable="0+", ignorable=True)


@message(api=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest(Message):
    controller_id: Int32 = at("0+")
    is_k_raft_controller: Bool = at("8+", default=False)
    type: Int8 = at("8+", default=0, tagged="8+", tag=0)
    controller_epoch: Int32 = at("0+")
    broker_epoch: Int64 = at("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = at("0-4", default=EMPTY)
    topic_states: list[UpdateMetadataTopicState] = at("5+", default=EMPTY)
    live_brokers: list[UpdateMetadataBroker] = at("0+")


@message(api=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse(Message):
    error_code: Int16 = at("0+")
