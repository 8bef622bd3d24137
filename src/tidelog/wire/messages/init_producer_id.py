"""InitProducerId (22), v0-6. Gives a producer its id and epoch; fences the previous holder of a transactional id."""

from tidelog.wire.declare import Bool, Int16, Int32, Int64, Message, String, at, message


@message(api=22, versions="0-6", flexible="2+")
class InitProducerIdRequest(Message):
    transactional_id: String | None = at("0+", nullable="0+")
    transaction_timeout_ms: Int32 = at("0+")
    producer_id: Int64 = at("3+", default=-1)
    producer_epoch: Int16 = at("3+", default=-1)
    enable2_pc: Bool = at("6+", default=False)
    keep_prepared_txn: Bool = at("6+", default=False)


@message(api=22, versions="0-6", flexible="2+")
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = at("0+", ignorable=True)
    error_code: Int16 = at("0+")
    producer_id: Int64 = at("0+", default=-1)
    producer_epoch: Int16 = at("0+")
    ongoing_txn_producer_id: Int64 = at("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = at("6+", default=-1)
