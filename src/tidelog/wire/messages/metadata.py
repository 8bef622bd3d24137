"""Metadata (3), v0-13. Tells which brokers there are and who leads which partition."""

from tidelog.wire.declare import (
    EMPTY,
    ZERO_UUID,
    Bool,
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
class MetadataRequestTopic(Struct):
    topic_id: Uuid = at("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = at("0+", nullable="10+")


@message(api=3, versions="0-13", flexible="9+")
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = at("0+", nullable="1+")
    allow_auto_topic_creation: Bool = at("4+", default=True)
    include_cluster_authorized_operations: Bool = at("8-10", default=False)
    include_topic_authorized_operations: Bool = at("8+", default=False)


@struct
class MetadataResponseBroker(Struct):
    node_id: Int32 = at("0+")
    host: String = at("0+")
    port: Int32 = at("0+")
    rack: String | None = at("1+", default=None, nullable="1+", ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    error_code: Int16 = at("0+")
    partition_index: Int32 = at("0+")
    leader_id: Int32 = at("0+")
    leader_epoch: Int32 = at("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = at("0+")
    isr_nodes: list[Int32] = at("0+")
    offline_replicas: list[Int32] = at("5+", default=EMPTY, ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    error_code: Int16 = at("0+")
    name: String | None = at("0+", nullable="12+")
    topic_id: Uuid = at("10+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = at("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = at("0+")
    topic_authorized_operations: Int32 = at("8+", default=-(2**31))


@message(api=3, versions="0-13", flexible="9+")
class MetadataResponse(Message):
    throttle_time_ms: Int32 = at("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = at("0+")
    cluster_id: String | None = at("2+", default=None, nullable="2+", ignorable=True)
    controller_id: Int32 = at("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = at("0+")
    cluster_authorized_operations: Int32 = at("8-10", default=-(2**31))
    error_code: Int16 = at("13+", default=0, ignorable=True)
