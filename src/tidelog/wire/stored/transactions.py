"""Records of the transaction coordinator on `__transaction_state`."""

from tidelog.wire.declare import Int8, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@message(versions="0", flexible="none")
class TransactionLogKey(Message):
    transactional_id: String = at("0")


@struct
class PartitionsSchema(Struct):
    topic: String = at("0+")
    partition_ids: list[Int32] = at("0+")


@message(versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    producer_id: Int64 = at("0+")
    previous_producer_id: Int64 = at("1+", default=-1, tagged="1+", tag=0)
    next_producer_id: Int64 = at("1+", default=-1, tagged="1+", tag=1)
    producer_epoch: Int16 = at("0+")
    next_producer_epoch: Int16 = at("1+", default=-1, tagged="1+", tag=3)
    transaction_timeout_ms: Int32 = at("0+")
    transaction_status: Int8 = at("0+")
    transaction_partitions: list[PartitionsSchema] | None = at("0+", nullable="0+")
    transaction_last_update_timestamp_ms: Int64 = at("0+")
    transaction_start_timestamp_ms: Int64 = at("0+")
    client_transaction_version: Int16 = at("1+", default=0, tagged="1+", tag=2)
    last_producer_epoch: Int16 = at("1+", default=-1, tagged="1+", tag=120)
    """Ours: Kafka keeps it in memory only, and fences a producer that repeats itself after a failover. Other readers
    pass over tags that they do not know."""
