"""Which columns can be sent, and what is said of those that cannot."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tidelog.records.arrow_rows import ArrowRows
from tidelog.records.build import build_batch, seal_batch
from tidelog.records.compiled import columns as compiled_columns
from tidelog.records.header import peek
from tidelog.records.record import Record, iter_records

if TYPE_CHECKING:
    from tidelog.records.compiled import ColumnCodec

NOW_MS = 1_700_000_000_123

either = pytest.mark.parametrize("codec", [compiled_columns, None], ids=["default", "pure"])


def records_of(table: pa.RecordBatch, codec: ColumnCodec | None) -> list[Record]:
    rows = ArrowRows(table, codec=codec)
    body = bytearray()
    step = rows.append(body, array("i", range(rows.length)).tobytes(), 0, limit=1 << 20, now_ms=NOW_MS)
    assert step.stop == rows.length
    header = peek(build_batch([Record(0, step.base_timestamp, None, None)]))._replace(record_count=rows.length)
    return list(iter_records(seal_batch(header, body)))


@either
@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "ü"]),
        pa.array(["a", None, "ü"], pa.large_string()),
        pa.array(["a", None, "ü"], pa.string_view()),
        pa.array(["a", None, "ü"]).dictionary_encode(),
        pa.array([b"a", None, "ü".encode()]),
        pa.array([b"a", None, "ü".encode()], pa.large_binary()),
        pa.array([b"a", None, "ü".encode()], pa.binary_view()),
    ],
    ids=lambda column: str(column.type),
)
def test_text_and_bytes_of_any_kind(codec: ColumnCodec | None, column: pa.Array) -> None:
    table = pa.RecordBatch.from_pydict({"value": column, "key": column})
    wanted = [b"a", None, "ü".encode()]
    assert [(record.key, record.value) for record in records_of(table, codec)] == [(cell, cell) for cell in wanted]


@either
def test_every_column(codec: ColumnCodec | None) -> None:
    table = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([99, 98], pa.int64()),
            "value": pa.array([b"v", None], pa.binary()),
            "key": pa.array([None, b"k"], pa.binary()),
            "timestamp": pa.array([(NOW_MS - 5) * 1000 + 7, None], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[("h", b"1"), ("i", None)], None], pa.map_(pa.string(), pa.binary())).cast(
                pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
            ),
        }
    )
    assert records_of(table, codec) == [
        Record(0, NOW_MS - 5, None, b"v", (("h", b"1"), ("i", None))),
        Record(1, NOW_MS, b"k", None),
    ]


@either
def test_wishes_go_before_keys_and_keys_before_anywhere(codec: ColumnCodec | None) -> None:
    table = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"v"] * 4),
            "key": pa.array([b"k", b"k", None, None]),
            "partition": pa.array([None, 5, None, 6], pa.int32()),
        }
    )
    found = {
        p: memoryview(rows).cast("i").tolist() for p, rows in ArrowRows(table, codec=codec).by_partition(7).items()
    }
    assert found[5] == [1]
    assert found[6] == [3]
    assert found[-1] == [2]
    (of_key,) = set(found) - {5, 6, -1}
    assert found[of_key] == [0]
    with pytest.raises(ValueError, match="no partition 6, the topic has 6"):
        ArrowRows(table, codec=codec).by_partition(6)


@either
def test_a_record_over_the_limit_stops_at_its_row(codec: ColumnCodec | None) -> None:
    rows = ArrowRows(pa.RecordBatch.from_pydict({"value": pa.array([b"v", bytes(500)])}), codec=codec)
    numbers = array("i", [0, 1]).tobytes()
    body = bytearray()
    assert rows.append(body, numbers, 0, limit=100, now_ms=NOW_MS) == (1, NOW_MS, NOW_MS)
    assert rows.append(bytearray(), numbers, 1, limit=100, now_ms=NOW_MS).stop == 1


@either
@pytest.mark.parametrize(
    ("columns", "error", "complaint"),
    [
        ({"key": [b"k"]}, ValueError, "no column 'value' among key"),
        ({"value": [5]}, TypeError, "column 'value' is int64: cast it"),
        ({"value": [b"v"], "key": [1.5]}, TypeError, "column 'key' is double"),
        ({"value": [b"v"], "partition": [-1]}, ValueError, "negative"),
        ({"value": [b"v"], "partition": [2**40]}, ValueError, "no partition 1099511627776"),
        ({"value": [b"v"], "partition": ["0"]}, TypeError, "must be an integer"),
        ({"value": [b"v"], "timestamp": ["now"]}, TypeError, "must be a timestamp"),
        ({"value": [b"v"], "headers": [[1]]}, TypeError, "list of structs"),
        ({"value": [b"v"], "headers": [[None, {"key": "a", "value": b""}]]}, ValueError, "null among the headers"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b"x"}, {"key": "", "value": b""}]]}, ValueError, "key"),
    ],
    ids=lambda item: "-".join(item) if isinstance(item, dict) else "",
)
def test_columns_that_cannot_be_sent(
    codec: ColumnCodec | None, columns: dict[str, list[Any]], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        records_of(pa.RecordBatch.from_pydict(columns), codec)


@either
def test_no_rows_are_no_records(codec: ColumnCodec | None) -> None:
    table = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary()), "partition": pa.array([], pa.int32())})
    assert ArrowRows(table, codec=codec).by_partition(3) == {}
