"""The compiled reader and writer of rows against the pure ones: the same rows, the same bytes, the same refusals."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import NamedTuple

import pytest
from codec_cases import NOW_MS, any_batches, compiled_rows, outcome, payloads, record_lists, whole_batches
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelog.records.build import append_record_pure, build_batch, record_size_max_pure
from tidelog.records.compiled import INTERFACE
from tidelog.records.header import HEADER_SIZE, peek
from tidelog.records.key_hash import murmur2_pure
from tidelog.records.record import INFLATED_BYTES_MAX, CorruptRecords, Record, RecordHeaders
from tidelog.records.rows import FIRST_OFFSET, read_rows, read_rows_pure, record_part

compiled = compiled_rows()

names = st.text(max_size=8) | st.just("\udcff")
headers_of_any_kind = st.lists(st.tuples(names, payloads), max_size=3).map(tuple)


class Placed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


def read_compiled(batch: bytearray, first_offset: int = FIRST_OFFSET) -> list[Placed] | None:
    """Without the pure reader behind it."""
    header = peek(batch)
    return compiled.read_rows(
        record_part(batch, header, INFLATED_BYTES_MAX),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.log_append_time else None,
        Placed,
        ("t", 3),
        first_offset,
    )


def test_it_is_the_one_that_runs() -> None:
    assert compiled.INTERFACE == INTERFACE
    code = "import tidelog.records.compiled as c, tidelog.records.build as b; print(c.rows is None, b.append_record)"
    ways = {}
    for pure in ("0", "1"):
        environment = {**os.environ, "TIDELOG_PURE": pure}
        ways[pure] = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout
    assert ways["0"].startswith("False")
    assert ways["1"].startswith("True <function append_record_pure")


@settings(max_examples=200)
@given(batch=any_batches)
def test_the_same_rows_or_the_same_refusal(batch: bytearray) -> None:
    pure = outcome(lambda: read_rows_pure(batch, Placed, ("t", 3)))
    assert outcome(lambda: read_rows(batch, Placed, ("t", 3))) == pure
    raw = outcome(lambda: read_compiled(batch))
    if isinstance(pure, list):
        assert raw == pure
        assert all(type(row) is Placed for row in raw)
    elif pure[0] is CorruptRecords and not pure[1].startswith("the batch claims"):
        assert raw is None
    else:
        assert raw == pure  # refused before any record is looked at


@given(batch=whole_batches(), skip=st.integers(0, 7))
def test_rows_before_the_first_offset_are_left_out(batch: bytearray, skip: int) -> None:
    first_offset = peek(batch).base_offset + skip
    wanted = read_rows_pure(batch, Placed, ("t", 3), first_offset=first_offset)
    assert read_compiled(batch, first_offset) == wanted
    assert all(row.offset >= first_offset for row in wanted)


def test_every_cut_of_a_body_is_refused() -> None:
    """The bytes after the cut are there in memory, so reading too far would not crash but succeed."""
    records = [Record(i, NOW_MS, b"k" * i, b"v" * 200, (("h", b"x"), ("i", None))) for i in range(4)]
    body = bytes(build_batch(records)[HEADER_SIZE:])
    for cut in range(len(body)):
        for count in range(1, 5):
            found = compiled.read_rows(memoryview(body)[:cut], count, 0, 0, None, Record, (), FIRST_OFFSET)
            assert found is None or sum(len(r.value or b"") for r in found) < cut
        assert compiled.read_rows(memoryview(body)[:cut], 4, 0, 0, None, Record, (), FIRST_OFFSET) is None


def test_rows_are_not_the_collectors_business() -> None:
    body = memoryview(build_batch([Record(0, NOW_MS, b"k", b"v")]))[HEADER_SIZE:]
    (row,) = compiled.read_rows(body, 1, 0, 0, None, Placed, ("t", 3), 0) or []
    assert not gc.is_tracked(row)
    (cyclic,) = compiled.read_rows(body, 1, 0, 0, None, Placed, ([], 3), 0) or []
    assert gc.is_tracked(cyclic)


def test_nothing_is_kept_of_what_was_read_and_written() -> None:
    """Reference counts are kept by hand in places."""
    topic, value, name = "t" * 9, bytes(300), "n" * 9
    batch = build_batch([Record(0, 10**15, b"key", value, ((name, value), (name, None)))])
    body = bytes(batch[HEADER_SIZE:])
    before = [sys.getrefcount(each) for each in (topic, value, name, body, None, ())]
    for _ in range(1000):
        compiled.read_rows(body, 1, 0, 0, None, Placed, (topic, 3), 0)
        compiled.read_rows(body[:-1], 1, 0, 0, None, Placed, (topic, 3), 0)
        compiled.append_record(bytearray(), 0, 0, None, value, headers=((name, value), (name, None)))
        compiled.record_size_max(None, value)
    after = [sys.getrefcount(each) for each in (topic, value, name, body, None, ())]
    assert all(abs(now - then) < 500 for now, then in zip(after, before, strict=True))


def test_only_tuples_are_filled() -> None:
    with pytest.raises(TypeError):
        compiled.read_rows(b"", 0, 0, 0, None, list, (), 0)  # type: ignore[type-var]


@given(
    offset_delta=st.integers(-(2**31), 2**31 - 1),
    timestamp_delta=st.integers(-(2**64), 2**64),
    key=payloads,
    value=payloads | st.binary().map(bytearray) | st.binary().map(lambda data: memoryview(data)[1:]),
    headers=headers_of_any_kind,
)
@example(0, 0, None, None, ()).via("the smallest")
def test_the_same_bytes(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | bytearray | memoryview | None,
    headers: RecordHeaders,
) -> None:
    ours, theirs = bytearray(b"before"), bytearray(b"before")
    fits = -(2**63) <= timestamp_delta < 2**63
    pure = outcome(lambda: append_record_pure(theirs, offset_delta, timestamp_delta, key, value, headers=headers))
    fast = outcome(lambda: compiled.append_record(ours, offset_delta, timestamp_delta, key, value, headers=headers))
    if fits:
        assert fast == pure
        assert len(ours) - 6 <= record_size_max_pure(key, value, headers)
    else:
        assert fast[0] is OverflowError
    assert ours == theirs
    assert compiled.record_size_max(key, value, headers) == record_size_max_pure(key, value, headers)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        ("text", b"v", ()),
        (b"k", 5, ()),
        (b"k", b"v", (("name", "text"),)),
        (b"k", b"v", ((b"name", b"v"),)),
        (b"k", b"v", (("name",),)),
        (b"k", b"v", (5,)),
    ],
    ids=str,
)
def test_what_is_not_bytes_is_refused_and_leaves_no_trace(key: object, value: object, headers: object) -> None:
    for append in (append_record_pure, compiled.append_record):
        body = bytearray(b"before")
        with pytest.raises((TypeError, ValueError, AttributeError)):
            append(body, 0, 0, key, value, headers=headers)  # type: ignore[arg-type]
        assert body == b"before"


@given(records=record_lists())
def test_lists_serve_as_headers_too(records: list[Record]) -> None:
    for record in records:
        ours, theirs = bytearray(), bytearray()
        compiled.append_record(ours, 0, 0, record.key, record.value, headers=list(record.headers))  # type: ignore[arg-type]
        append_record_pure(theirs, 0, 0, record.key, record.value, headers=record.headers)
        assert ours == theirs


@given(st.binary(max_size=40))
def test_keys_hash_alike(key: bytes) -> None:
    assert compiled.murmur2(key) == murmur2_pure(key)
