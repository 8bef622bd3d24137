"""Produce: what the leader takes, what it refuses and with which code, and what each kind of acks means."""

from __future__ import annotations

import zlib
from struct import pack
from typing import TYPE_CHECKING

import cramjam
import pytest
from asking import (
    LATEST,
    RECENT_MS,
    batch_of,
    bytes_of,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
    records_of,
    try_fetch,
    try_produce,
    values_in,
)

from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.header import ATTRIBUTES_AT, CONTROL_BIT, HEADER, crc_ok, peek, write_crc
from tidelog.records.record import Record, iter_batches
from tidelog.testing import RawClient, eventually
from tidelog.types import new_topic_id
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess

HOUR_MS = 3_600_000
MESSAGE_BYTES_MAX = 1_048_588
DEFLATING_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def sealed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with header fields changed and a checksum that is right all the same."""
    header = peek(batch)._replace(**fields)
    HEADER.pack_into(batch, 0, *header)
    write_crc(batch, 0, len(batch))
    return batch


def assert_refused(
    client: RawClient, topic: str, batch: bytes | bytearray | None, *codes: ErrorCode, version: int = 9
) -> None:
    """The batch is refused with one of `codes`, and nothing of it is stored."""
    before = list_offset(client, topic, LATEST).offset
    result = try_produce(client, topic, batch, version=version)
    assert result.error_code in codes, ErrorCode(result.error_code).name
    assert result.base_offset == -1
    if version >= 8:
        assert result.error_message
    assert list_offset(client, topic, LATEST).offset == before


def test_the_leader_assigns_offsets_and_stamps_its_epoch(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert [produce(raw, topic, batch_of([b"a", b"b", b"c"])), produce(raw, topic, batch_of([b"d"]))] == [0, 3]
    data = try_fetch(raw, fetch_request(topic, 0))
    headers = [batch.header for batch in iter_batches(bytes_of(data))]
    assert [(header.base_offset, header.last_offset) for header in headers] == [(0, 2), (3, 3)]
    assert all(header.leader_epoch >= 0 for header in headers)
    assert [record.offset for record in records_of(data)] == [0, 1, 2, 3]


def test_stored_bytes_are_those_sent_but_for_offset_and_epoch(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    for codec in Codec:
        sent = batch_of([b"value %d" % number for number in range(20)], codec=codec)
        offset = produce(raw, topic, sent)
        (stored,) = iter_batches(bytes_of(try_fetch(raw, fetch_request(topic, offset))))
        assert bytes(stored.data[8:12]) == sent[8:12]
        assert bytes(stored.data[16:]) == sent[16:]


def test_the_reply_carries_the_log_start_offset(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    result = try_produce(raw, topic, batch_of([b"x"]))
    assert (result.base_offset, result.log_start_offset, result.log_append_time_ms) == (0, 0, -1)


def test_a_wrong_checksum_is_a_corrupt_message(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"some value"])
    batch[-3] ^= 1
    assert_refused(raw, topic, batch, ErrorCode.CORRUPT_MESSAGE)


def test_more_than_one_batch_per_partition_is_refused(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert_refused(raw, topic, batch_of([b"one"]) + batch_of([b"two"]), ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("records", [None, b""])
def test_no_batch_at_all_is_refused(raw: RawClient, topic: str, records: bytes | None) -> None:
    create_topic(raw, topic)
    assert_refused(raw, topic, records, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("size", [1, 16, 17, 60])
def test_a_batch_cut_short_is_refused(raw: RawClient, topic: str, size: int) -> None:
    create_topic(raw, topic)
    cut = batch_of([b"value"])[:size]
    assert_refused(raw, topic, cut, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_a_batch_that_lies_about_its_length_is_refused(raw: RawClient, topic: str, length: int) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"value"])
    batch[8:12] = pack(">i", length)
    assert_refused(raw, topic, batch, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def old_message(magic: int, value: bytes) -> bytes:
    body = (
        bytes([magic, 0]) + (pack(">q", RECENT_MS) if magic else b"") + pack(">i", -1) + pack(">i", len(value)) + value
    )
    message = pack(">I", zlib.crc32(body)) + body
    return pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_with_a_message_that_says_so(raw: RawClient, topic: str, magic: int) -> None:
    create_topic(raw, topic)
    result = try_produce(raw, topic, old_message(magic, b"a value from long ago"))
    assert result.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert "v2" in str(result.error_message)
    assert values_in(raw, topic) == []


def test_a_client_may_not_write_control_batches(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"commit"])
    batch[ATTRIBUTES_AT + 1] |= CONTROL_BIT
    write_crc(batch, 0, len(batch))
    assert_refused(raw, topic, batch, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize(
    "fields",
    [
        {"last_offset_delta": 5},
        {"last_offset_delta": 0},
        {"record_count": 3, "last_offset_delta": 1},
        {"record_count": 0},
        {"record_count": -1},
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_counts_and_offset_deltas_that_disagree_are_refused(
    raw: RawClient, topic: str, fields: dict[str, int], codec: Codec
) -> None:
    create_topic(raw, topic)
    assert_refused(raw, topic, sealed(batch_of([b"one", b"two"], codec=codec), **fields), ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("count", [1000, 2**31 - 1])
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_claims_more_records_than_its_bytes_can_hold_is_refused(
    raw: RawClient, topic: str, count: int, codec: Codec
) -> None:
    """Believing the count would leave a gap of as many offsets in the log."""
    create_topic(raw, topic)
    batch = sealed(batch_of([b"one", b"two"], codec=codec), record_count=count, last_offset_delta=count - 1)
    assert_refused(raw, topic, batch, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("configs", [{"cleanup.policy": "compact"}, {"compression.type": "gzip"}])
def test_where_records_are_looked_at_their_number_must_be_right(
    raw: RawClient, topic: str, count: int, codec: Codec, configs: dict[str, str]
) -> None:
    if codec is Codec.GZIP:
        configs = {"cleanup.policy": "compact"}
    create_topic(raw, topic, configs=configs)
    batch = sealed(batch_of([b"one", b"two"], codec=codec), record_count=count, last_offset_delta=count - 1)
    assert_refused(raw, topic, batch, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", DEFLATING_CODECS)
def test_garbage_in_place_of_compressed_records_is_refused(raw: RawClient, topic: str, codec: Codec) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"value" * 50], codec=codec)
    batch[61:] = bytes((7 * index + 13) % 256 for index in range(len(batch) - 61))
    write_crc(batch, 0, len(batch))
    assert_refused(raw, topic, batch, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", DEFLATING_CODECS)
def test_compressed_records_that_end_early_are_refused(raw: RawClient, topic: str, codec: Codec) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"value %d" % number for number in range(100)], codec=codec)
    del batch[-10:]
    sealed(batch, batch_length=len(batch) - 12)
    assert_refused(raw, topic, batch, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_a_compression_bomb_is_refused_without_memory_for_it(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic)
    bomb = batch_of([b"x"], codec=Codec.ZSTD)
    del bomb[61:]
    bomb += bytes(cramjam.zstd.compress(bytes(600 << 20)))
    assert len(bomb) < MESSAGE_BYTES_MAX
    sealed(bomb, batch_length=len(bomb) - 12)
    before = broker.resident_bytes()
    assert_refused(raw, topic, bomb, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert broker.resident_bytes() - before < 64 << 20


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(raw: RawClient, topic: str, codec: int) -> None:
    create_topic(raw, topic)
    batch = sealed(batch_of([b"value"]), attributes=codec)
    assert_refused(raw, topic, batch, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_needs_produce_version_7(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"value"], codec=Codec.ZSTD)
    assert_refused(raw, topic, batch, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, version=version)
    assert try_produce(raw, topic, batch, version=7).error_code == ErrorCode.NONE


def test_the_size_limit_counts_the_whole_batch_and_is_inclusive(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    overhead = len(batch_of([bytes(1_000_000)])) - 1_000_000
    fitting = batch_of([bytes(MESSAGE_BYTES_MAX - overhead)])
    assert len(fitting) == MESSAGE_BYTES_MAX
    assert produce(raw, topic, fitting) == 0
    assert_refused(raw, topic, batch_of([bytes(MESSAGE_BYTES_MAX - overhead + 1)]), ErrorCode.MESSAGE_TOO_LARGE)


def test_the_size_limit_counts_compressed_bytes(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    batch = batch_of([bytes(4 << 20)], codec=Codec.ZSTD)
    assert len(batch) < MESSAGE_BYTES_MAX
    assert produce(raw, topic, batch) == 0


def test_a_batch_larger_than_a_segment_is_refused(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"segment.bytes": str(1 << 20), "max.message.bytes": str(8 << 20)})
    assert_refused(raw, topic, batch_of([bytes(2 << 20)]), ErrorCode.RECORD_LIST_TOO_LARGE)


def test_timestamps_outside_the_limits_are_refused(raw: RawClient, topic: str) -> None:
    now = SystemClock().now_ms()
    limits = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
    create_topic(raw, topic, configs=limits)
    assert_refused(raw, topic, batch_of([b"old"], timestamp_ms=now - 2 * HOUR_MS), ErrorCode.INVALID_TIMESTAMP)
    assert_refused(raw, topic, batch_of([b"early"], timestamp_ms=now + 2 * HOUR_MS), ErrorCode.INVALID_TIMESTAMP)
    produce(raw, topic, batch_of([b"just right"], timestamp_ms=now))


def test_minus_one_is_no_timestamp_and_passes_the_limits(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"message.timestamp.before.max.ms": str(HOUR_MS)})
    produce(raw, topic, batch_of([b"timeless"], timestamp_ms=-1))
    assert [record.timestamp for record in fetch(raw, topic)] == [-1]


@pytest.mark.parametrize("codec", Codec)
def test_a_null_key_on_a_compacted_topic_is_refused_and_the_record_is_named(
    raw: RawClient, topic: str, codec: Codec
) -> None:
    create_topic(raw, topic, configs={"cleanup.policy": "compact"})
    records = [Record(index, RECENT_MS, key, b"value") for index, key in enumerate([b"a", None, b"c", None])]
    batch = build_batch(records, codec=codec)
    assert_refused(raw, topic, batch, ErrorCode.INVALID_RECORD)
    result = try_produce(raw, topic, batch)
    assert [entry.batch_index for entry in result.record_errors] == [1, 3]
    assert all(entry.batch_index_error_message for entry in result.record_errors)
    produce(raw, topic, batch_of([b"with a key"], key=b"k"))


def test_acks_0_gets_no_reply(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    raw.send(produce_request(topic, batch_of([b"silent"]), acks=0), 9)
    assert raw.call(MetadataRequest(topics=[]), 9, MetadataResponse).controller_id == 0, (
        "the next reply is the next one"
    )
    eventually(lambda: values_in(raw, topic) == [b"silent"], "the record to arrive")


def test_acks_0_closes_the_connection_on_an_error(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    with RawClient(broker.port) as other:
        create_topic(other, topic)
        raw.send(produce_request(topic, batch_of([b"x"]), partition=7, acks=0), 9)
        assert raw.wait_until_closed() == 0
        produce(other, topic, batch_of([b"served"]))


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(raw: RawClient, topic: str, acks: int) -> None:
    create_topic(raw, topic)
    assert try_produce(raw, topic, batch_of([b"x"]), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert values_in(raw, topic) == []


def test_a_topic_cannot_need_more_replicas_in_sync_than_it_has(raw: RawClient, topic: str) -> None:
    """Kafka counts min.insync.replicas up to the number of replicas: a single one is not asked for two."""
    create_topic(raw, topic, configs={"min.insync.replicas": "2"})
    assert produce(raw, topic, batch_of([b"x"]), acks=-1) == 0


def test_one_failing_partition_does_not_fail_the_others_and_the_reply_keeps_the_order(
    raw: RawClient, topic: str
) -> None:
    create_topic(raw, topic, partitions=3)
    create_topic(raw, f"{topic}-b")
    corrupt = batch_of([b"damaged"])
    corrupt[-1] ^= 1
    wanted = [(2, batch_of([b"two"])), (9, batch_of([b"nine"])), (0, corrupt), (1, batch_of([b"one"]))]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=f"{topic}-b", partition_data=[PartitionProduceData(index=0, records=batch_of([b"b"]))]
            ),
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in wanted],
            ),
            TopicProduceData(
                name=f"{topic}-none", partition_data=[PartitionProduceData(index=0, records=batch_of([b"n"]))]
            ),
        ],
    )
    reply = raw.call(request, 9, ProduceResponse)
    outcome = [
        (entry.name, [(part.index, part.error_code) for part in entry.partition_responses]) for entry in reply.responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome == [
        (f"{topic}-b", [(0, 0)]),
        (topic, [(2, 0), (9, unknown), (0, ErrorCode.CORRUPT_MESSAGE), (1, 0)]),
        (f"{topic}-none", [(0, unknown)]),
    ]
    assert values_in(raw, topic, 1) == [b"one"]
    assert values_in(raw, topic, 2) == [b"two"]
    assert values_in(raw, topic, 0) == []


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1])
def test_an_unknown_partition_is_refused(raw: RawClient, topic: str, partition: int) -> None:
    create_topic(raw, topic)
    result = try_produce(raw, topic, batch_of([b"x"]), partition)
    assert (result.error_code, result.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_produce_by_topic_id(raw: RawClient, topic: str) -> None:
    topic_id = create_topic(raw, topic)
    assert try_produce(raw, "", batch_of([b"by id"]), topic_id=topic_id, version=13).error_code == ErrorCode.NONE
    assert values_in(raw, topic) == [b"by id"]
    unknown = try_produce(raw, "", batch_of([b"by id"]), topic_id=new_topic_id(), version=13)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_stores_the_batch(raw: RawClient, topic: str, version: int) -> None:
    topic_id = create_topic(raw, topic)
    result = try_produce(raw, topic, batch_of([b"v%d" % version]), version=version, topic_id=topic_id)
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
    assert values_in(raw, topic) == [b"v%d" % version]


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_is_the_broker_s_and_the_checksum_fits(raw: RawClient, topic: str, codec: Codec) -> None:
    create_topic(raw, topic, configs={"message.timestamp.type": "LogAppendTime"})
    before = SystemClock().now_ms()
    result = try_produce(raw, topic, batch_of([b"a", b"b"], codec=codec))
    after = SystemClock().now_ms()
    assert before <= result.log_append_time_ms <= after
    data = try_fetch(raw, fetch_request(topic, 0))
    (batch,) = iter_batches(bytes_of(data))
    assert batch.header.log_append_time
    assert crc_ok(batch.data, 0, len(batch.data))
    assert {record.timestamp for record in records_of(data)} == {result.log_append_time_ms}


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_of_the_topic_decides_what_is_stored(
    raw: RawClient, topic: str, sent: Codec, wanted: str
) -> None:
    create_topic(raw, topic, configs={"compression.type": wanted})
    values: list[bytes | None] = [b"value %d" % number for number in range(50)]
    produce(raw, topic, batch_of(values, codec=sent))
    data = try_fetch(raw, fetch_request(topic, 0))
    (batch,) = iter_batches(bytes_of(data))
    assert Codec(batch.header.codec) == (Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()])
    assert crc_ok(batch.data, 0, len(batch.data))
    assert [(record.offset, record.timestamp, record.value) for record in records_of(data)] == [
        (index, RECENT_MS + index, value) for index, value in enumerate(values)
    ]
