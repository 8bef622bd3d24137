"""The compiled modules where they were built, else None, and then everything is done by the pure ones.

TIDELOG_PURE=1 in the environment leaves them aside. So does a number that does not match: the module was built from
other sources than those beside it, and `pip install` has to be run again.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.records.header import Buffer

    Headers = tuple[tuple[str, bytes | None], ...]
    Row = TypeVar("Row", bound=tuple[Any, ...])

INTERFACE: Final = 1
"""Counts up with every change to what a compiled module and its callers know of each other."""


class RowCodec(Protocol):
    """`_rows.pyx`."""

    INTERFACE: int

    def read_rows(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        row_type: type[Row],
        prefix: tuple[Any, ...],
        first_offset: int,
        /,
    ) -> list[Row] | None: ...

    def append_record(
        self,
        body: bytearray,
        offset_delta: int,
        timestamp_delta: int,
        key: Buffer | None,
        value: Buffer | None,
        *,
        headers: Headers = (),
    ) -> int: ...

    def record_size_max(self, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int: ...

    def murmur2(self, data: bytes, /) -> int: ...


BinaryColumn = tuple[int, int, Any, Any, Any]
"""First row, length, validity, ends, data: the buffers of an Arrow array of binary."""


class ColumnBuilder(Protocol):
    rows: int

    def takes(self, body_bytes: int, count: int, topic_bytes: int, /) -> bool: ...

    def add(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        topic: bytes,
        partition: int,
        first_offset: int,
        /,
    ) -> int: ...

    def finish(self) -> tuple[int, Any, Any]: ...


class ColumnSource(Protocol):
    def partitions(self, count: int, explicit: Any = None) -> bytearray: ...

    def append(
        self, body: bytearray, rows: Buffer | None, start: int, stop: int, limit: int, now_ms: int, /
    ) -> tuple[int, int, int]: ...


class ColumnCodec(Protocol):
    """`_columns.pyx`."""

    INTERFACE: int
    REFUSED: int

    def ColumnBuilder(self, with_headers: bool, /) -> ColumnBuilder: ...  # noqa: N802 - a class

    def ColumnSource(  # noqa: N802 - a class
        self,
        length: int,
        keys: BinaryColumn | None,
        values: BinaryColumn | None,
        timestamps: tuple[int, Any, Any] | None,
        headers: tuple[int, Any, Any, BinaryColumn, BinaryColumn] | None,
        /,
    ) -> ColumnSource: ...

    def rows_by_partition(self, ids: Buffer, /) -> dict[int, bytearray]: ...


def _load(name: str) -> Any:
    if os.environ.get("TIDELOG_PURE", "") not in {"", "0"}:
        return None
    try:
        module = import_module(f"tidelog.records.{name}")
    except ImportError:  # never built, or for another interpreter
        return None
    return module if module.INTERFACE == INTERFACE else None


rows: RowCodec | None = _load("_rows")
columns: ColumnCodec | None = _load("_columns")
