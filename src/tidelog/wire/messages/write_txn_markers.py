"""WriteTxnMarkers (27), v1-2. The coordinator has partition leaders write commit or abort markers."""

from tidelog.wire.declare import Bool, Int8, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class WritableTxnMarkerTopic(Struct):
    name: String = at("0+")
    partition_indexes: list[Int32] = at("0+")


@struct
class WritableTxnMarker(Struct):
    producer_id: Int64 = at("0+")
    producer_epoch: Int16 = at("0+")
    transaction_result: Bool = at("0+")
    topics: list[WritableTxnMarkerTopic] = at("0+")
    coordinator_epoch: Int32 = at("0+")
    transaction_version: Int8 = at("2+", default=0, ignorable=True)


@message(api=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = at("0+")


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: String = at("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = at("0+")


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = at("0+")
    topics: list[WritableTxnMarkerTopicResult] = at("0+")


@message(api=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = at("0+")
