"""Batches as Arrow record batches with the schema of Spark's Kafka source. Needs pyarrow (the extra `arrow`).

    builder = ArrowBuilder()
    for batch in iter_batches(buffer):
        builder.add(batch.data, "orders", 0)
    table = builder.finish()

The compiled reader writes straight into the columns' memory. Where it is missing, rows are read first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from tidelog.records.build import build_batch
from tidelog.records.compiled import columns as compiled_columns
from tidelog.records.header import HEADER_SIZE, peek
from tidelog.records.record import INFLATED_BYTES_MAX, CorruptRecords, iter_body
from tidelog.records.rows import FIRST_OFFSET, record_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.records.compiled import ColumnCodec
    from tidelog.records.header import BatchHeader, Buffer
    from tidelog.records.record import Record, RecordHeaders

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

_PLAIN_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
_HEADERS_FIELD: Final = pa.field("headers", pa.list_(pa.field("element", HEADER_TYPE)))

SCHEMA: Final = pa.schema([*_PLAIN_FIELDS, _HEADERS_FIELD])
"""What Spark's Kafka source gives, in its order; `headers` are null for a record that has none."""
SCHEMA_WITHOUT_HEADERS: Final = pa.schema(_PLAIN_FIELDS)
"""The same as Spark gives it without `includeHeaders`."""

BODY_BYTES_MAX: Final = 512 << 20
"""Of records, inflated, in one record batch: no column of theirs reaches Arrow's 2 GiB then."""
_TOPIC_BYTES_MAX: Final = 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_MICROSECONDS: Final = 1000


class Columns(Protocol):
    """What a builder fills: compiled, or the reference."""

    def add(self, body: Buffer, header: BatchHeader, topic: str, partition: int, first_offset: int) -> int:
        """The number of rows taken in; negative if not all records are right, and then none is taken in."""

    def finish(self, schema: pa.Schema) -> pa.RecordBatch: ...


class ArrowBuilder:
    """One record batch in the making, of batches of any partitions."""

    def __init__(self, *, headers: bool = True, codec: ColumnCodec | None = compiled_columns) -> None:
        self.schema = SCHEMA if headers else SCHEMA_WITHOUT_HEADERS
        self.rows = 0
        self.body_bytes = 0
        """Of the records taken in, inflated."""
        self._topic_bytes = 0
        self._columns: Columns = PureColumns() if codec is None else CompiledColumns(codec, with_headers=headers)

    def add(
        self,
        batch: Buffer,
        topic: str,
        partition: int,
        *,
        first_offset: int = FIRST_OFFSET,
        max_bytes: int = INFLATED_BYTES_MAX,
    ) -> int:
        """Takes in the records of one whole batch from `first_offset` on; gives their number.

        OverflowError when it would become more than columns can hold. Nothing of a batch that is refused is taken in.
        The checksum is not looked at here.
        """
        header = peek(batch)
        return self._add(record_part(batch, header, max_bytes), header, topic, partition, first_offset)

    def add_records(self, records: Sequence[Record], topic: str, partition: int) -> int:
        """Takes in records that were read before; their timestamps count as the producer's."""
        if not records:
            return 0
        batch = build_batch(records)
        return self._add(memoryview(batch)[HEADER_SIZE:], peek(batch), topic, partition, FIRST_OFFSET)

    def _add(self, body: Buffer, header: BatchHeader, topic: str, partition: int, first_offset: int) -> int:
        topic_bytes = self._topic_bytes + header.record_count * len(topic.encode())
        if self.body_bytes + len(body) > BODY_BYTES_MAX or topic_bytes > _TOPIC_BYTES_MAX:
            # A count that lies is refused below, unless it lies this much.
            raise OverflowError("the columns are full: finish them before this batch")
        taken = self._columns.add(body, header, topic, partition, first_offset)
        if taken < 0:
            PureColumns().add(body, header, topic, partition, first_offset)
            raise AssertionError("the compiled reader refuses a batch that the pure one takes")
        self.rows += taken
        self.body_bytes += len(body)
        self._topic_bytes += taken * len(topic.encode())
        return taken

    def finish(self) -> pa.RecordBatch:
        """The rows taken in. The builder is used up."""
        return self._columns.finish(self.schema)


class CompiledColumns:
    """Arrow's buffers, filled by the compiled reader."""

    def __init__(self, codec: ColumnCodec, *, with_headers: bool) -> None:
        self._builder = codec.ColumnBuilder(with_headers)

    def add(self, body: Buffer, header: BatchHeader, topic: str, partition: int, first_offset: int) -> int:
        return self._builder.add(
            body,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.log_append_time else None,
            topic.encode(),
            partition,
            first_offset,
        )

    def finish(self, schema: pa.Schema) -> pa.RecordBatch:
        rows, columns, headers = self._builder.finish()
        arrays = [
            _array(field.type, rows, nulls, buffers)
            for field, (nulls, buffers) in zip(_PLAIN_FIELDS, columns, strict=True)
        ]
        if headers is not None:
            nulls, buffers, (length, names, contents) = headers
            children = [_array(pa.string(), length, *names), _array(pa.binary(), length, *contents)]
            items = pa.Array.from_buffers(HEADER_TYPE, length, [None], 0, children=children)
            arrays.append(_array(_HEADERS_FIELD.type, rows, nulls, buffers, [items]))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class PureColumns:
    """Lists of Python objects, and the reference for what is in the columns."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, body: Buffer, header: BatchHeader, topic: str, partition: int, first_offset: int) -> int:
        records = list(iter_body(bytes(body), header))
        for record in records:
            if not _INT64_MIN <= record.offset <= _INT64_MAX:
                raise CorruptRecords(f"offset {record.offset} is one that no log can have")
        kind = int(header.log_append_time)
        rows = [
            (key, value, topic, partition, offset, _microseconds(timestamp), kind, _header_items(headers))
            for offset, timestamp, key, value, headers in records
            if offset >= first_offset
        ]
        self._rows += rows
        return len(rows)

    def finish(self, schema: pa.Schema) -> pa.RecordBatch:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _microseconds(timestamp_ms: int) -> int:
    """Times that Arrow's microseconds cannot tell are the first or the last one that they can."""
    return max(_INT64_MIN, min(_INT64_MAX, timestamp_ms * _MICROSECONDS))


def _header_items(headers: RecordHeaders) -> list[dict[str, Any]] | None:
    """Names in UTF-8, as columns of text must be, whatever their bytes were."""
    if not headers:
        return None
    return [
        {"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for name, value in headers
    ]


def _array(
    kind: pa.DataType,
    length: int,
    nulls: int,
    buffers: Sequence[bytearray | None],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    valid, *others = buffers
    memory = [pa.py_buffer(valid) if nulls else None, *(pa.py_buffer(each) for each in others)]
    return pa.Array.from_buffers(kind, length, memory, nulls, children=children)
