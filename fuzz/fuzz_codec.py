"""The compiled codec against the pure one: any bytes give the same rows and columns, or are refused by both.

The first byte chooses the batch's attributes and how many records its header claims; the rest are the records. What is
read is written again, and must be the same bytes wherever these were the only way to write it.

python fuzz/fuzz_codec.py -max_total_time=60
"""
# ruff: noqa: INP001 -- scripts, not a package

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import atheris

with atheris.instrument_imports(include=["tidelog"]):
    from tidelog.records.build import append_record_pure
    from tidelog.records.header import MAGIC_V2, BatchHeader
    from tidelog.records.record import CorruptRecords, Record, iter_body

if TYPE_CHECKING:
    from tidelog.records.compiled import ColumnCodec, RowCodec

ROWS: RowCodec = import_module("tidelog.records._rows")
COLUMNS: ColumnCodec = import_module("tidelog.records._columns")

BASE_MS = 1_700_000_000_000
BASE_OFFSET = 1 << 40


def read_pure(body: bytes, header: BatchHeader) -> list[Record] | None:
    try:
        return list(iter_body(body, header))
    except CorruptRecords:
        return None


def one_input(data: bytes) -> None:
    if not data:
        return
    choice, body = data[0], data[1:]
    append_time = BASE_MS if choice & 1 else None
    count, first_offset = choice >> 4, BASE_OFFSET + (choice >> 1 & 7)
    header = BatchHeader(
        BASE_OFFSET, 0, -1, MAGIC_V2, 0, 8 * (choice & 1), max(0, count - 1), BASE_MS, BASE_MS, -1, -1, -1, count
    )
    pure = read_pure(body, header)
    rows = ROWS.read_rows(body, count, BASE_OFFSET, BASE_MS, append_time, Record, (), BASE_OFFSET - (1 << 32))
    assert rows == pure, (rows, pure)
    builder = COLUMNS.ColumnBuilder(True)
    taken = builder.add(body, count, BASE_OFFSET, BASE_MS, append_time, b"t", 0, first_offset)
    if pure is None:
        assert taken == COLUMNS.REFUSED
        return
    wanted = [record for record in pure if record.offset >= first_offset]
    assert taken == len(wanted) == builder.rows
    _, columns, headers = builder.finish()
    assert bytes(columns[0][1][2]) == b"".join(record.key or b"" for record in wanted)
    assert bytes(columns[1][1][2]) == b"".join(record.value or b"" for record in wanted)
    assert headers[2][0] == sum(len(record.headers) for record in wanted)
    ours, theirs = bytearray(), bytearray()
    for offset, timestamp, key, value, named in pure:
        deltas = (offset - BASE_OFFSET, max(-(2**63), timestamp - BASE_MS))
        ROWS.append_record(ours, *deltas, key, value, headers=named)
        append_record_pure(theirs, *deltas, key, value, headers=named)
    assert ours == theirs


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
