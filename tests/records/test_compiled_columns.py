"""The compiled reader and writer of Arrow columns against the pure ones: the same columns, bytes and refusals."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from codec_cases import NOW_MS, any_batches, compiled_columns, damaged_batches, outcome, record_lists, whole_batches
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.records.arrow import SCHEMA, ArrowBuilder
from tidelog.records.arrow_rows import ArrowRows, rows_by_partition_pure
from tidelog.records.build import build_batch
from tidelog.records.compiled import INTERFACE
from tidelog.records.header import HEADER_SIZE, peek
from tidelog.records.record import Record
from tidelog.records.rows import FIRST_OFFSET

if TYPE_CHECKING:
    from tidelog.records.compiled import ColumnCodec

compiled = compiled_columns()


def built(batches: list[bytearray], codec: ColumnCodec | None, *, headers: bool = True, skip: int = 0) -> Any:
    """What comes of each batch, and all their rows."""
    builder = ArrowBuilder(headers=headers, codec=codec)
    results = []
    for number, batch in enumerate(batches):
        skips = skip and len(batch) > HEADER_SIZE
        first_offset = min(peek(batch).base_offset + skip, 2**63 - 1) if skips else FIRST_OFFSET
        results.append(
            outcome(lambda b=batch, n=number, f=first_offset: builder.add(b, f"topic-é-{n}", n, first_offset=f))  # type: ignore[misc]
        )
    rows = builder.finish()
    rows.validate(full=True)
    assert rows.num_rows == builder.rows
    return results, rows


def test_it_is_the_one_that_runs() -> None:
    assert compiled.INTERFACE == INTERFACE


@settings(max_examples=150)
@given(batches=st.lists(any_batches, max_size=4), headers=st.booleans(), skip=st.integers(0, 4))
def test_the_same_columns_or_the_same_refusals(batches: list[bytearray], headers: bool, skip: int) -> None:
    pure_results, pure_rows = built(batches, None, headers=headers, skip=skip)
    results, rows = built(batches, compiled, headers=headers, skip=skip)
    assert results == pure_results
    assert rows.schema == pure_rows.schema
    assert rows.equals(pure_rows)


@given(before=whole_batches(), damaged=damaged_batches(), after=whole_batches())
def test_a_refused_batch_leaves_no_trace(before: bytearray, damaged: bytearray, after: bytearray) -> None:
    results, rows = built([before, damaged, after], compiled)
    if not isinstance(results[1], int):
        assert rows.num_rows == results[0] + results[2]
    assert rows.equals(built([before, damaged, after], None)[1])


def test_every_cut_of_a_body_is_refused() -> None:
    records = [Record(i, NOW_MS, b"k" * i, b"v" * 200, (("h", b"x"), ("i", None))) for i in range(4)]
    body = bytes(build_batch(records)[HEADER_SIZE:])
    builder = compiled.ColumnBuilder(True)
    for cut in range(len(body)):
        assert builder.add(memoryview(body)[:cut], 4, 0, 0, None, b"t", 0, FIRST_OFFSET) == compiled.REFUSED
    assert builder.rows == 0
    assert builder.add(body, 4, 0, 0, None, b"t", 0, FIRST_OFFSET) == 4


def test_columns_end_before_arrow_does() -> None:
    builder = compiled.ColumnBuilder(True)
    assert builder.takes(2**29, 10, 10)
    assert not builder.takes(2**30, 10, 10)
    assert not builder.takes(10, 2**30, 10)


cells = st.none() | st.binary(max_size=12) | st.sampled_from([bytes(64), bytes(9000)])
header_cells = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(st.characters(codec="utf-8"), max_size=5), "value": cells}), max_size=3
)
stamps = st.none() | st.integers(NOW_MS - 1000, NOW_MS + 1000) | st.integers(-(2**63), 2**63 - 1)


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    """Whole ones and slices, whose buffers begin before their first row."""
    size = draw(st.integers(0, 9))

    def column(cell: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(cell, min_size=size, max_size=size)), kind)

    texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=8)
    kinds = [(cells, pa.binary()), (cells, pa.large_binary()), (texts, pa.string()), (texts, pa.string_view())]
    columns = {"value": column(*draw(st.sampled_from(kinds)))}
    if draw(st.booleans()):
        columns["key"] = column(*draw(st.sampled_from([*kinds, (st.none(), pa.null())])))
    if draw(st.booleans()):
        columns["timestamp"] = column(stamps, pa.int64())
    if draw(st.booleans()):
        columns["headers"] = column(header_cells, SCHEMA.field("headers").type)
    if draw(st.booleans()):
        columns["partition"] = column(st.none() | st.integers(0, 3), pa.int64())
    table = pa.RecordBatch.from_pydict(columns)
    start = draw(st.integers(0, size))
    return table.slice(start, draw(st.integers(0, size - start)))


def encoded(table: pa.RecordBatch, codec: ColumnCodec | None, limit: int) -> Any:
    """The bodies of all batches that the table becomes, by partition."""
    rows = ArrowRows(table, codec=codec)
    bodies: list[Any] = []
    for partition, numbers in sorted(rows.by_partition(4).items()):
        start = 0
        while start * 4 < len(numbers):
            body = bytearray()
            try:
                step = rows.append(body, numbers, start, limit=limit, now_ms=NOW_MS)
            except OverflowError:
                bodies.append((partition, "timestamps too far apart"))
                break
            bodies.append((partition, step, bytes(body)))
            if step.stop == start:
                break
            start = step.stop
    return bodies


@settings(max_examples=150)
@given(table=tables(), limit=st.sampled_from([0, 60, 200, 1 << 20]))
def test_the_same_bytes_of_columns(table: pa.RecordBatch, limit: int) -> None:
    assert encoded(table, compiled, limit) == encoded(table, None, limit)


@given(records=record_lists())
def test_what_is_written_of_columns_is_read_back(records: list[Record]) -> None:
    builder = ArrowBuilder(codec=compiled)
    builder.add(build_batch(records), "t", 0)
    table = builder.finish()
    rows = ArrowRows(
        table.set_column(5, "timestamp", pa.array([r.timestamp for r in records], pa.int64())), codec=compiled
    )
    body = bytearray()
    numbers = rows.by_partition(1)[0]
    rows.append(body, numbers, 0, limit=1 << 30, now_ms=0)
    renumbered = [record._replace(offset=number) for number, record in enumerate(records)]
    assert body == build_batch(renumbered)[HEADER_SIZE:]


@given(ids=st.lists(st.integers(-1, 5), max_size=60))
def test_rows_find_their_partitions_alike(ids: list[int]) -> None:
    numbers = array("i", ids).tobytes()
    assert compiled.rows_by_partition(numbers) == rows_by_partition_pure(numbers)


BINARY = (0, 2, None, array("i", [0, 1, 2]).tobytes(), b"ab")


@pytest.mark.parametrize(
    "column",
    [
        pytest.param((0, 2, None, array("i", [0, 1]).tobytes(), b"ab"), id="too few ends"),
        pytest.param((0, 2, b"", array("i", [0, 1, 2]).tobytes(), b"ab"), id="too few bits"),
        pytest.param((0, 2, None, array("i", [0, 2, 1]).tobytes(), b"ab"), id="backwards"),
        pytest.param((0, 2, None, array("i", [-1, 1, 2]).tobytes(), b"ab"), id="negative"),
        pytest.param((0, 2, None, array("i", [0, 1, 3]).tobytes(), b"ab"), id="over the end"),
        pytest.param((0, 2, None, array("i", [0, 1, 2]).tobytes(), None), id="no data"),
        pytest.param((0, 2, None, None, b"ab"), id="no ends"),
        pytest.param((0, 1, None, array("i", [0, 1, 2]).tobytes(), b"ab"), id="too short"),
        pytest.param((2, 2, None, array("i", [0, 1, 2]).tobytes(), b"ab"), id="begins too late"),
        pytest.param((-1, 2, None, array("i", [0, 1, 2]).tobytes(), b"ab"), id="begins before"),
    ],
)
def test_columns_that_lie_are_refused(column: Any) -> None:
    lists = (0, None, array("i", [0, 1, 2]).tobytes())
    for keys, headers in ((column, None), (BINARY, (*lists, column, BINARY)), (BINARY, (*lists, BINARY, column))):
        with pytest.raises(ValueError, match="Arrow"):
            compiled.ColumnSource(2, keys, BINARY, None, headers).append(bytearray(), None, 0, 2, 1000, 0)


def test_rows_that_are_not_there_are_refused() -> None:
    source = compiled.ColumnSource(2, BINARY, BINARY, None, None)
    for rows, start, stop in (
        (None, 0, 3),
        (None, -1, 2),
        (None, 2, 1),
        (array("i", [0]).tobytes(), 0, 2),
        (array("i", [2]).tobytes(), 0, 1),
        (array("i", [-1]).tobytes(), 0, 1),
    ):
        with pytest.raises(IndexError):
            source.append(bytearray(), rows, start, stop, 1000, 0)
    with pytest.raises(ValueError, match="Arrow"):
        source.partitions(3, array("i", [0]))
    with pytest.raises(ValueError, match="one partition"):
        source.partitions(0)


def test_lists_that_lie_are_refused() -> None:
    for ends in ([0, 1, 3], [0, 2, 1], [-1, 0, 1]):
        headers = (0, None, array("i", ends).tobytes(), BINARY, BINARY)
        with pytest.raises(ValueError, match="Arrow list"):
            compiled.ColumnSource(2, BINARY, BINARY, None, headers).append(bytearray(), None, 0, 2, 1000, 0)
