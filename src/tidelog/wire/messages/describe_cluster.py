"""DescribeCluster (60), v0-2. Tells the cluster's id, brokers and controller."""

from tidelog.wire.declare import Bool, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@message(api=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: Bool = at("0+")
    endpoint_type: Int8 = at("1+", default=1)
    include_fenced_brokers: Bool = at("2+", default=False)


@struct
class DescribeClusterBroker(Struct):
    broker_id: Int32 = at("0+")
    host: String = at("0+")
    port: Int32 = at("0+")
    rack: String | None = at("0+", default=None, nullable="0+")
    is_fenced: Bool = at("2+", default=False)


@message(api=60, versions="0-2", flexible="0+")
class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", default=None, nullable="0+")
    endpoint_type: Int8 = at("1+", default=1)
    cluster_id: String = at("0+")
    controller_id: Int32 = at("0+", default=-1)
    brokers: list[DescribeClusterBroker] = at("0+")
    cluster_authorized_operations: Int32 = at("0+", default=-(2**31))
