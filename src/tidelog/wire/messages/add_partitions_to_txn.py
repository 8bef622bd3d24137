"""AddPartitionsToTxn (24), v0-5. Registers partitions with an open transaction; from v4 brokers send it batched."""

from tidelog.wire.declare import EMPTY, Bool, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class AddPartitionsToTxnTopic(Struct):
    name: String = at("0+")
    partitions: list[Int32] = at("0+")


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = at("4+", default="")
    producer_id: Int64 = at("4+", default=0)
    producer_epoch: Int16 = at("4+", default=0)
    verify_only: Bool = at("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = at("4+", default=EMPTY)


@message(api=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction] = at("4+", default=EMPTY)
    v3_and_below_transactional_id: String = at("0-3", default="")
    v3_and_below_producer_id: Int64 = at("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = at("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = at("0-3", default=EMPTY)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = at("0+")
    partition_error_code: Int16 = at("0+")


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: String = at("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = at("0+")


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: String = at("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = at("4+", default=EMPTY)


@message(api=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = at("4+", default=EMPTY)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = at("0-3", default=EMPTY)
