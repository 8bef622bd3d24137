"""Batches against other people's code: aiokafka and kafka-python read what we build, and we read what they build.

Their snappy, lz4 and zstd bindings are partly ours too; `test_librdkafka_batches.py` has the independent ones.
"""

from __future__ import annotations

import warnings

import pytest
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecordBatch as AiokafkaBatch,
)
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.topic import TopicConfig
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.control import Marker, MarkerType, build_marker
from tidelog.records.header import crc_ok, peek
from tidelog.records.record import Record, RecordHeaders, iter_records
from tidelog.records.validate import check_produced, deep_check
from tidelog.types import LeaderEpoch, ProducerId

with warnings.catch_warnings():
    # The library reads its own schemas by a deprecated call of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch  # type: ignore[import-untyped]
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

NOW_MS = 1_700_000_000_000

payloads = st.none() | st.binary(max_size=100)
header_lists = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)
contents = st.lists(st.tuples(st.integers(0, 3_600_000), payloads, payloads, header_lists), min_size=1, max_size=6)

# kafka-python's other codecs need packages that are not among the test dependencies.
LIBRARIES_AND_CODECS = [
    pytest.param(builder, reader, codec, id=f"{name}-{codec.name}")
    for name, builder, reader, codecs in (
        ("aiokafka", AiokafkaBuilder, AiokafkaBatch, list(Codec)),
        ("kafka-python", KafkaPythonBuilder, KafkaPythonBatch, [Codec.NONE, Codec.GZIP]),
    )
    for codec in codecs
]
with_each = pytest.mark.parametrize(("builder", "reader", "codec"), LIBRARIES_AND_CODECS)

Content = tuple[int, bytes | None, bytes | None, RecordHeaders]


def as_records(content: list[Content]) -> list[Record]:
    return [Record(i, NOW_MS + delay, key, value, headers) for i, (delay, key, value, headers) in enumerate(content)]


def read_by(reader: type, batch: bytearray) -> list[Record]:
    theirs = reader(bytes(batch))
    assert theirs.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]


def built_by(builder: type, records: list[Record], codec: Codec) -> bytearray:
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=11,
        producer_epoch=3,
        base_sequence=500,
        batch_size=1 << 30,
    )
    for offset, timestamp, key, value, headers in records:
        theirs.append(offset, timestamp, key, value, list(headers))
    return bytearray(theirs.build())


@with_each
@given(content=contents)
def test_they_read_what_we_build(builder: type, reader: type, codec: Codec, content: list[Content]) -> None:
    del builder
    records = as_records(content)
    assert read_by(reader, build_batch(records, codec=codec)) == records


@with_each
@given(content=contents)
def test_we_read_what_they_build(builder: type, reader: type, codec: Codec, content: list[Content]) -> None:
    del reader
    records = as_records(content)
    batch = built_by(builder, records, codec)
    assert crc_ok(batch, 0, len(batch))
    assert list(iter_records(batch)) == records
    header = check_produced(memoryview(batch), TopicConfig(), NOW_MS)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 3, 500)
    assert deep_check(memoryview(batch), header, TopicConfig()).obj is batch


@with_each
def test_a_large_batch_goes_both_ways(builder: type, reader: type, codec: Codec) -> None:
    records = [Record(i, NOW_MS + i * 7, b"key %d" % i, b"%d " % i * 300) for i in range(1000)]
    assert read_by(reader, build_batch(records, codec=codec)) == records
    assert list(iter_records(built_by(builder, records, codec))) == records


@given(content=contents)
def test_uncompressed_batches_are_the_same_bytes(content: list[Content]) -> None:
    records = as_records(content)
    ours = build_batch(
        records, producer_id=ProducerId(11), producer_epoch=3, base_sequence=500, leader_epoch=LeaderEpoch(0)
    )
    assert ours == built_by(KafkaPythonBuilder, records, Codec.NONE)


@pytest.mark.parametrize("reader", [AiokafkaBatch, KafkaPythonBatch], ids=["aiokafka", "kafka-python"])
def test_header_fields_mean_the_same(reader: type) -> None:
    batch = build_batch(
        [Record(70, NOW_MS, None, b"a"), Record(75, NOW_MS + 5, None, b"b")],
        codec=Codec.GZIP,
        producer_id=ProducerId(8),
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
        append_time_ms=NOW_MS + 9,
    )
    ours, theirs = peek(batch), reader(bytes(batch))
    assert theirs.base_offset == ours.base_offset
    assert theirs.next_offset == ours.next_offset
    assert theirs.compression_type == ours.codec
    assert theirs.timestamp_type == int(ours.log_append_time)
    assert theirs.is_transactional == ours.transactional
    assert theirs.is_control_batch == ours.control
    assert theirs.max_timestamp == ours.max_timestamp
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (8, 2, 40)
    assert read_by(reader, batch) == list(iter_records(batch))


@pytest.mark.parametrize("marker_type", list(MarkerType))
def test_kafka_python_understands_our_markers(marker_type: MarkerType) -> None:
    batch = build_marker(Marker(marker_type, 3), producer_id=ProducerId(5), producer_epoch=1, timestamp_ms=NOW_MS)
    theirs = KafkaPythonBatch(bytes(batch))
    assert theirs.is_control_batch
    (record,) = theirs
    assert (record.abort, record.commit) == (not marker_type, bool(marker_type))
