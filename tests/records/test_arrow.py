"""What the columns of records are: Spark's, cell by cell, by whichever reader runs here and by the pure one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.records import arrow
from tidelog.records.arrow import SCHEMA, SCHEMA_WITHOUT_HEADERS, ArrowBuilder
from tidelog.records.build import build_batch
from tidelog.records.compiled import columns as compiled_columns
from tidelog.records.compression import Codec
from tidelog.records.record import CorruptRecords, Record

if TYPE_CHECKING:
    from tidelog.records.compiled import ColumnCodec

NOW_MS = 1_700_000_000_123
SPARKS_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
    StructField(
        "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
    ),
]

either = pytest.mark.parametrize("codec", [compiled_columns, None], ids=["default", "pure"])


def test_the_schema_is_sparks() -> None:
    spark = to_arrow_schema(StructType(SPARKS_COLUMNS), timezone="UTC")
    assert spark.equals(SCHEMA, check_metadata=True)
    assert SCHEMA_WITHOUT_HEADERS.names == SCHEMA.names[:-1]


@either
def test_a_row_cell_by_cell(codec: ColumnCodec | None) -> None:
    builder = ArrowBuilder(codec=codec)
    batch = build_batch([Record(7, NOW_MS, b"k", b"v", (("h", b"1"), ("i", None))), Record(9, -1, None, None)])
    assert builder.add(batch, "orders", 3) == 2
    assert builder.finish().to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime.fromtimestamp(NOW_MS // 1000, UTC).replace(microsecond=123_000),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
        },
        {
            "key": None,
            "value": None,
            "topic": "orders",
            "partition": 3,
            "offset": 9,
            "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
            "timestampType": 0,
            "headers": None,
        },
    ]


@either
def test_append_time_has_its_own_type(codec: ColumnCodec | None) -> None:
    builder = ArrowBuilder(codec=codec, headers=False)
    builder.add(build_batch([Record(0, 5, None, b"v")], append_time_ms=NOW_MS), "t", 0)
    rows = builder.finish()
    assert rows.schema == SCHEMA_WITHOUT_HEADERS
    assert rows.column("timestampType").to_pylist() == [1]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [NOW_MS * 1000]


@either
def test_times_beyond_arrows_are_its_last(codec: ColumnCodec | None) -> None:
    builder = ArrowBuilder(codec=codec)
    for timestamp in (2**62, -(2**62)):
        builder.add(build_batch([Record(0, timestamp, None, b"v")]), "t", 0)
    assert builder.finish().column("timestamp").cast(pa.int64()).to_pylist() == [2**63 - 1, -(2**63)]


@either
def test_header_names_become_text(codec: ColumnCodec | None) -> None:
    builder = ArrowBuilder(codec=codec)
    names = ("é", "\udcff!", "plain")
    builder.add(build_batch([Record(0, 1, None, None, tuple((name, None) for name in names))]), "t", 0)
    (headers,) = builder.finish().column("headers").to_pylist()
    assert [header["key"] for header in headers] == ["é", "\ufffd!", "plain"]


@either
@pytest.mark.parametrize("compression", list(Codec), ids=lambda c: c.name)
def test_batches_of_many_partitions_in_one(codec: ColumnCodec | None, compression: Codec) -> None:
    builder = ArrowBuilder(codec=codec)
    for partition in range(3):
        records = [Record(i, NOW_MS, None, b"%d" % i * 50) for i in range(100)]
        batch = build_batch(records, codec=compression)
        assert builder.add(batch, f"t{partition}", partition, first_offset=90) == 10
    rows = builder.finish()
    assert builder.rows == rows.num_rows == 30
    assert rows.column("offset").to_pylist() == [*range(90, 100)] * 3
    assert rows.column("topic").to_pylist() == ["t0"] * 10 + ["t1"] * 10 + ["t2"] * 10


@either
def test_records_read_before_fit_in(codec: ColumnCodec | None) -> None:
    records = [Record(i * 3, NOW_MS - i, b"k", b"v", (("h", b"x"),)) for i in range(20)]
    one, other = ArrowBuilder(codec=codec), ArrowBuilder(codec=codec)
    assert one.add_records([], "t", 1) == 0
    assert one.add_records(records, "t", 1) == 20
    other.add(build_batch(records), "t", 1)
    assert one.finish().equals(other.finish())


@either
def test_an_offset_that_no_log_has_is_refused(codec: ColumnCodec | None) -> None:
    batch = build_batch([Record(2**63 - 1, 0, None, None), Record(2**63, 0, None, None)])
    builder = ArrowBuilder(codec=codec)
    with pytest.raises(CorruptRecords, match="9223372036854775808"):
        builder.add(batch, "t", 0)
    assert builder.finish().num_rows == 0


@either
def test_too_much_for_one_is_refused(codec: ColumnCodec | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BODY_BYTES_MAX", 250)
    batch = build_batch([Record(0, NOW_MS, None, bytes(100))])
    builder = ArrowBuilder(codec=codec)
    builder.add(batch, "t", 0)
    builder.add(batch, "t", 0)
    with pytest.raises(OverflowError, match="full"):
        builder.add(batch, "t", 0)
    assert builder.finish().num_rows == 2
