"""AddOffsetsToTxn (25), v0-4. Registers a group's offsets with an open transaction."""

from tidelog.wire.declare import Int16, Int32, Int64, Message, String, at, message


@message(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    transactional_id: String = at("0+")
    producer_id: Int64 = at("0+")
    producer_epoch: Int16 = at("0+")
    group_id: String = at("0+")


@message(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
