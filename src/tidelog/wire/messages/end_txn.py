"""EndTxn (26), v0-5. Commits or aborts a transaction."""

from tidelog.wire.declare import Bool, Int16, Int32, Int64, Message, String, at, message


@message(api=26, versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    transactional_id: String = at("0+")
    producer_id: Int64 = at("0+")
    producer_epoch: Int16 = at("0+")
    committed: Bool = at("0+")


@message(api=26, versions="0-5", flexible="3+")
class EndTxnResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    producer_id: Int64 = at("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = at("5+", default=-1, ignorable=True)
