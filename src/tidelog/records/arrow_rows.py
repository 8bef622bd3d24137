"""Rows of Arrow columns as records: which partition each goes to, and their bytes. Needs pyarrow (the extra `arrow`).

The columns are those of Spark's Kafka sink: `value`, and if wanted `key`, `headers`, `partition`, and `timestamp`. Text
counts as its UTF-8 bytes. Other columns are not looked at, so that what was read can be written again.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from tidelog.records.build import append_record_pure
from tidelog.records.compiled import columns as compiled_columns
from tidelog.records.key_hash import murmur2_pure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.records.compiled import BinaryColumn, ColumnCodec
    from tidelog.records.header import Buffer

_HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())]))
_NO_PARTITION: Final = -1
_INT32_MAX: Final = 2**31 - 1


class Encoded(NamedTuple):
    """How far a call of `append` came."""

    stop: int
    """The first row that is not in it. The one it began with: that record alone is too large."""
    base_timestamp: int
    max_timestamp: int


class RowSource(Protocol):
    """Columns that can be read row by row: compiled, or the reference."""

    def partitions(self, count: int, explicit: Any = None) -> bytearray: ...

    def append(
        self, body: bytearray, rows: Buffer | None, start: int, stop: int, limit: int, now_ms: int, /
    ) -> tuple[int, int, int]: ...


class ArrowRows:
    """The rows of one record batch.

    TypeError for a column of a wrong type, ValueError for a cell that cannot be sent.
    """

    def __init__(self, batch: pa.RecordBatch, *, codec: ColumnCodec | None = compiled_columns) -> None:
        self.length: int = batch.num_rows
        keys = self._keys = _binary(batch, "key")
        values = _binary(batch, "value")
        if values is None:
            raise ValueError(f"there is no column 'value' among {', '.join(batch.schema.names) or 'none'}")
        self._last_wish, self._wishes = _partitions(batch)
        timestamps = _milliseconds(batch)
        headers = _headers(batch)
        self._codec = codec
        self._source: RowSource = (
            PureSource(self.length, keys, values, timestamps, headers)
            if codec is None
            else codec.ColumnSource(
                self.length,
                None if keys is None else _binary_buffers(keys),
                _binary_buffers(values),
                None if timestamps is None else _number_buffers(timestamps),
                None if headers is None else _list_buffers(headers),
            )
        )

    def by_partition(self, count: int, choose: Callable[[bytes | None], int] | None = None) -> dict[int, Buffer]:
        """The numbers of the rows (int32, in order) for each of `count` partitions; those of partition -1 have no key
        and no wish, and may go anywhere.

        `choose`, if given, is asked for every row without a wish, in the place of Kafka's rules for keys.
        """
        if self._last_wish >= count:
            raise ValueError(f"there is no partition {self._last_wish}, the topic has {count}")
        ids = self._source.partitions(count, self._chosen(choose))
        if self._codec is not None:
            return dict(self._codec.rows_by_partition(ids))
        return rows_by_partition_pure(ids)

    def _chosen(self, choose: Callable[[bytes | None], int] | None) -> Any:
        if choose is None:
            return self._wishes
        keys = [None] * self.length if self._keys is None else self._keys.to_pylist()
        wishes = [_NO_PARTITION] * self.length if self._wishes is None else self._wishes.cast("B").cast("i")
        return array("i", [wish if wish >= 0 else choose(key) for wish, key in zip(wishes, keys, strict=True)])

    def append(self, body: bytearray, rows: Buffer, start: int, *, limit: int, now_ms: int) -> Encoded:
        """Adds the records of `rows` from the one at `start` on to an empty `body`, while it has at most `limit` bytes.

        `now_ms` is the timestamp of rows that bring none.
        """
        return Encoded(*self._source.append(body, rows, start, len(rows) // 4, limit, now_ms))


class PureSource:
    """Lists of Python objects, and the reference for what becomes of a row."""

    def __init__(
        self,
        length: int,
        keys: pa.Array | None,
        values: pa.Array | None,
        timestamps: pa.Array | None,
        headers: pa.Array | None,
    ) -> None:
        self._keys = [None] * length if keys is None else keys.to_pylist()
        self._values = [None] * length if values is None else values.to_pylist()
        self._timestamps = [None] * length if timestamps is None else timestamps.to_pylist()
        self._headers = [None] * length if headers is None else headers.to_pylist()

    def partitions(self, count: int, explicit: Any = None) -> bytearray:
        wishes = [_NO_PARTITION] * len(self._keys) if explicit is None else memoryview(explicit).cast("B").cast("i")
        ids = [
            wish if wish >= 0 or key is None else (murmur2_pure(key) & 0x7FFF_FFFF) % count
            for wish, key in zip(wishes, self._keys, strict=True)
        ]
        return bytearray(array("i", ids).tobytes())

    def append(
        self, body: bytearray, rows: Buffer | None, start: int, stop: int, limit: int, now_ms: int, /
    ) -> tuple[int, int, int]:
        numbers = range(len(self._keys)) if rows is None else memoryview(rows).cast("B").cast("i")
        base_timestamp = max_timestamp = now_ms
        for index in range(start, stop):
            row = numbers[index]
            stamp = self._timestamps[row]
            timestamp = now_ms if stamp is None else stamp
            if index == start:
                base_timestamp = max_timestamp = timestamp
            record = bytearray()
            headers = tuple((_header_name(item["key"]), item["value"]) for item in self._headers[row] or ())
            delta = timestamp - base_timestamp
            append_record_pure(record, index - start, delta, self._keys[row], self._values[row], headers=headers)
            if len(body) + len(record) > limit:
                return index, base_timestamp, max_timestamp
            body += record
            max_timestamp = max(max_timestamp, timestamp)
        return stop, base_timestamp, max_timestamp


def rows_by_partition_pure(ids: Buffer) -> dict[int, Buffer]:
    found: dict[int, array[int]] = {}
    for row, partition in enumerate(memoryview(ids).cast("i")):
        found.setdefault(partition, array("i")).append(row)
    return {partition: numbers.tobytes() for partition, numbers in found.items()}


def _header_name(name: bytes | None) -> str:
    if name is None:
        raise ValueError("a record header needs a key: it is null")
    return name.decode("utf-8", "surrogateescape")


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column = batch.column(index)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _binary(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    column = _column(batch, name)
    if column is None or pa.types.is_null(column.type):
        return column if column is None else pa.nulls(len(column), pa.binary())
    if not _is_bytes(column.type):
        raise TypeError(f"column {name!r} is {column.type}: cast it to binary or string first")
    return column.cast(pa.binary())


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_binary,
        pa.types.is_string,
        pa.types.is_large_binary,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
        pa.types.is_string_view,
    )
    return any(check(kind) for check in checks)


def _partitions(batch: pa.RecordBatch) -> tuple[int, memoryview | None]:
    """The greatest partition that a row asks for, and what each asks for (int32)."""
    column = _column(batch, "partition")
    if column is None or column.null_count == len(column):
        return _NO_PARTITION, None
    if not pa.types.is_integer(column.type):
        raise TypeError(f"column 'partition' is {column.type}: it must be an integer")
    extremes = pc.min_max(column).as_py()
    if extremes["min"] < 0:
        raise ValueError("column 'partition' holds negative numbers: null stands for no partition in particular")
    if extremes["max"] > _INT32_MAX:
        raise ValueError(f"there is no partition {extremes['max']}")
    wishes = column.cast(pa.int32()).fill_null(_NO_PARTITION)
    return extremes["max"], memoryview(wishes.buffers()[1])[4 * wishes.offset : 4 * (wishes.offset + len(wishes))]


def _milliseconds(batch: pa.RecordBatch) -> pa.Array | None:
    column = _column(batch, "timestamp")
    if column is None or pa.types.is_null(column.type):
        return None
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    raise TypeError(f"column 'timestamp' is {column.type}: it must be a timestamp, or an integer of milliseconds")


def _headers(batch: pa.RecordBatch) -> pa.Array | None:
    column = _column(batch, "headers")
    if column is None or pa.types.is_null(column.type):
        return None
    try:
        headers = column.cast(_HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise TypeError(
            f"column 'headers' is {column.type}: it must be a list of structs of a string `key` and a binary `value`"
        ) from error
    if headers.values.null_count:
        raise ValueError("column 'headers' holds a null among the headers of a record")
    return headers


def _binary_buffers(column: pa.Array) -> BinaryColumn:
    valid, ends, data = column.buffers()
    return column.offset, len(column), valid, ends, data


def _number_buffers(column: pa.Array) -> tuple[int, Any, Any]:
    valid, numbers = column.buffers()
    return column.offset, valid, numbers


def _list_buffers(column: pa.Array) -> tuple[int, Any, Any, BinaryColumn, BinaryColumn]:
    valid, ends = column.buffers()[:2]
    items = column.values
    return column.offset, valid, ends, _binary_buffers(items.field(0)), _binary_buffers(items.field(1))
