"""All records of a batch at once, as rows of whatever tuple type the reader wants: compiled where that is there.

The compiled reader only says whether the bytes are right. What is wrong with them the pure one finds out, so that both
refuse the same batches in the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.records.compiled import rows as compiled_rows
from tidelog.records.header import HEADER_SIZE, BatchHeader, Buffer, peek
from tidelog.records.record import INFLATED_BYTES_MAX, check_whole, inflate, iter_records

if TYPE_CHECKING:
    from typing import Any

FIRST_OFFSET: Final = -(2**63)
"""As the first offset that is wanted: every record."""

Row = TypeVar("Row", bound="tuple[Any, ...]")

_new_tuple = tuple.__new__


def read_rows(
    batch: Buffer,
    row_type: type[Row],
    prefix: tuple[Any, ...] = (),
    *,
    first_offset: int = FIRST_OFFSET,
    max_bytes: int = INFLATED_BYTES_MAX,
) -> list[Row]:
    """A row of `prefix` and then offset, timestamp, key, value and headers for each record from `first_offset` on.

    `row_type` is a NamedTuple or another subclass of tuple; its `__new__` is not called. The batch is a whole one,
    whose checksum is not looked at here.
    """
    if compiled_rows is not None:
        header = peek(batch)
        found = compiled_rows.read_rows(
            record_part(batch, header, max_bytes),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.log_append_time else None,
            row_type,
            tuple(prefix),
            first_offset,
        )
        if found is not None:
            return found
    return read_rows_pure(batch, row_type, prefix, first_offset=first_offset, max_bytes=max_bytes)


def read_rows_pure(
    batch: Buffer,
    row_type: type[Row],
    prefix: tuple[Any, ...] = (),
    *,
    first_offset: int = FIRST_OFFSET,
    max_bytes: int = INFLATED_BYTES_MAX,
) -> list[Row]:
    """As `read_rows`, by Python alone."""
    return [
        _new_tuple(row_type, (*prefix, *record))
        for record in iter_records(batch, max_bytes)
        if record.offset >= first_offset
    ]


def record_part(batch: Buffer, header: BatchHeader, max_bytes: int) -> Buffer:
    """As `inflate`, but without a copy where there is nothing to inflate."""
    if header.codec or len(batch) > max_bytes:
        return inflate(batch, header, max_bytes)
    check_whole(batch, header)
    return memoryview(batch)[HEADER_SIZE:]
