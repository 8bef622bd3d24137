"""DescribeTransactions (65), v0. Shows the state of transactions."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@message(api=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    transactional_ids: list[String] = at("0+")


@struct
class TopicData(Struct):
    topic: String = at("0+")
    partitions: list[Int32] = at("0+")


@struct
class TransactionState(Struct):
    error_code: Int16 = at("0+")
    transactional_id: String = at("0+")
    transaction_state: String = at("0+")
    transaction_timeout_ms: Int32 = at("0+")
    transaction_start_time_ms: Int64 = at("0+")
    producer_id: Int64 = at("0+")
    producer_epoch: Int16 = at("0+")
    topics: list[TopicData] = at("0+")


@message(api=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    transaction_states: list[TransactionState] = at("0+")
