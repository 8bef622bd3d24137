"""ListTransactions (66), v0-2. Lists the transactions that a broker coordinates."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, Struct, at, message, struct


@message(api=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Message):
    state_filters: list[String] = at("0+")
    producer_id_filters: list[Int64] = at("0+")
    duration_filter: Int64 = at("1+", default=-1)
    transactional_id_pattern: String | None = at("2+", default=None, nullable="2+")


@struct
class TransactionState(Struct):
    transactional_id: String = at("0+")
    producer_id: Int64 = at("0+")
    transaction_state: String = at("0+")


@message(api=66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    unknown_state_filters: list[String] = at("0+")
    transaction_states: list[TransactionState] = at("0+")
