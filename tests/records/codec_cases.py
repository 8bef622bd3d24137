"""Batches for holding the compiled codec against the pure one: whole, damaged, and not batches at all."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tidelog.records.build import build_batch, seal_batch
from tidelog.records.compression import Codec
from tidelog.records.header import BatchHeader
from tidelog.records.record import Record, RecordHeaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.records.compiled import ColumnCodec, RowCodec

NOW_MS = 1_700_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)

payloads = st.none() | st.binary(max_size=70) | st.sampled_from([bytes(64), bytes(8191), bytes(8192)])
header_names = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("n" * 70)
timestamps = st.just(-1) | INT64 | st.integers(NOW_MS, NOW_MS + 100_000)


def compiled_rows() -> RowCodec:
    module: RowCodec = _compiled("_rows")
    return module


def compiled_columns() -> ColumnCodec:
    module: ColumnCodec = _compiled("_columns")
    return module


def _compiled(name: str) -> Any:
    """Whether or not it is the one that runs. Without it there is nothing to compare."""
    try:
        return import_module(f"tidelog.records.{name}")
    except ModuleNotFoundError:
        raise RuntimeError("the codec is not compiled: install gcc and Python's headers, then `make setup`") from None


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 6) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records: list[Record] = []
    base = draw(timestamps)
    for _ in range(draw(st.integers(1, max_size))):
        headers: RecordHeaders = tuple(draw(st.lists(st.tuples(header_names, payloads), max_size=3)))
        timestamp = draw(timestamps.filter(lambda ms: -(2**63) <= ms - base < 2**63)) if records else base
        records.append(Record(offset, timestamp, draw(payloads), draw(payloads), headers))
        offset += draw(st.integers(1, 3) | st.integers(1, 2**20))
    return records


@st.composite
def whole_batches(draw: st.DrawFn) -> bytearray:
    append_time_ms = draw(st.none() | st.just(NOW_MS) | INT64)
    return build_batch(draw(record_lists()), codec=draw(st.sampled_from(Codec)), append_time_ms=append_time_ms)


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytearray:
    """Mostly uncompressed, since damage to compressed bytes rarely reaches the records."""
    batch = build_batch(draw(record_lists()), codec=draw(st.just(Codec.NONE) | st.sampled_from(Codec)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(batch) - 1) | st.integers(61, len(batch) - 1))
        batch[at] = draw(st.integers(0, 255) | st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]))
    if draw(st.booleans()):
        del batch[draw(st.integers(0, len(batch))) :]
    return batch


@st.composite
def arbitrary_batches(draw: st.DrawFn) -> bytearray:
    """A right header over any bytes: numbers of every width, and then noise."""
    pieces = st.sampled_from(
        [b"\x00", b"\x01", b"\x02", b"\x0c", b"\x80", b"\xff", b"\x80\x01", b"\xff\xff\xff\xff\x0f"]
    )
    one_record = bytes.fromhex("0c000000010100")
    body = b"".join(draw(st.lists(pieces | st.just(one_record) | st.binary(max_size=6), max_size=14)))
    count = draw(st.integers(-1, 6) | st.just(2**31 - 1))
    base_offset, base_timestamp, max_timestamp = draw(INT64), draw(INT64), draw(INT64)
    attributes = draw(st.sampled_from([0, 8]))
    header = BatchHeader(
        base_offset, 0, -1, 2, 0, attributes, max(0, count - 1), base_timestamp, max_timestamp, -1, -1, -1, count
    )
    batch = seal_batch(header, body)
    batch[21:23] = attributes.to_bytes(2, "big")
    return batch


any_batches = whole_batches() | damaged_batches() | arbitrary_batches()


def outcome(read: Callable[[], Any]) -> Any:
    """What comes of it: the result, or the error's kind and words."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
        return type(error), str(error)
