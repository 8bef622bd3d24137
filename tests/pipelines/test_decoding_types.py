"""Types and values of Avro and Protobuf as Spark and Arrow have them, and why JSON cannot be read."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from fake_registry import FakeRegistry
from google.protobuf import timestamp_pb2  # type: ignore[import-untyped]
from protobuf_orders import COLUMNS, descriptors
from pyspark.sql.pandas.types import to_arrow_type

from tidelog.client.serializers.framing import prefix
from tidelog.client.serializers.registry import RegistryError, Schema, SchemaRegistry
from tidelog.pipelines import PipelineError, avro, protobuf
from tidelog.pipelines.decoding.arrow_decoding import ArrowDecoding
from tidelog.pipelines.decoding.avro_types import record_type
from tidelog.pipelines.decoding.protobuf_messages import message_class, with_message
from tidelog.pipelines.decoding.readers import columns_of, reader_of
from tidelog.pipelines.decoding.reasons import json_fault

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.pipelines.definition.formats import Format

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": "Kind"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
    ],
}
ORDER = {
    "id": 7,
    "note": None,
    "price": Decimal("12.50"),
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 2),
    "ref": UUID(int=5),
    "kind": "A",
    "other": "B",
    "tags": {"x": 1},
    "lines": [{"sku": "s1"}],
}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decode_batch(format_: Format, values: list[bytes | None]) -> tuple[list[Any], list[str | None]]:
    arrow_type = to_arrow_type(columns_of(format_), timezone="UTC")
    batch = pa.RecordBatch.from_arrays([pa.array(values, type=pa.binary())], names=["value"])
    (out,) = ArrowDecoding(format_, "value", "decoded", "error", arrow_type)(iter([batch]))
    assert out.schema.names == ["value", "decoded", "error"]
    return out.column("decoded").to_pylist(), out.column("error").to_pylist()


def test_avro_becomes_columns() -> None:
    assert record_type(EVERYTHING).simpleString() == (
        "struct<id:bigint,note:string,price:decimal(10,2),at:timestamp,day:date,ref:string,kind:string,other:string,"
        "tags:map<string,int>,lines:array<struct<sku:string>>>"
    )


def test_avro_values_fit_their_columns() -> None:
    values, errors = decode_batch(avro(EVERYTHING), [written(EVERYTHING, ORDER), None, b"\x01", b""])
    assert values[0] == {**ORDER, "ref": str(ORDER["ref"]), "tags": [("x", 1)]}
    assert values[1:] == [None, None, None]
    assert errors[:2] == [None, None]
    assert all(errors[2:])


def test_avro_with_something_left_over_is_malformed() -> None:
    simple = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    _, errors = decode_batch(avro(simple), [written(simple, {"id": 1}) + b"x"])
    assert errors == ["ValueError: 1 bytes are left over after the Avro value"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}, "union of 2 types"),
        ("long", "is a record"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "Unknown"}]}, "no counterpart"),
    ],
)
def test_what_spark_has_no_type_for(schema: Any, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        record_type(schema)


def test_protobuf_becomes_columns_and_values(tmp_path: Path) -> None:
    format_ = with_message(protobuf("shop.Order", descriptors=descriptors(tmp_path / "shop.desc").name), tmp_path)
    assert columns_of(format_).simpleString() == COLUMNS
    message = message_class(format_)(id=5, big=2**64 - 1, tags=["a"], kind=1, raw=b"\x00", counts={"x": 2})
    message.at.FromDatetime(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    message.note.value = "hello"
    values, errors = decode_batch(format_, [message.SerializeToString(), b"", b"\xff"])
    assert values[0] == {
        "id": 5,
        "big": Decimal(2**64 - 1),
        "tags": ["a"],
        "kind": "GIFT",
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "note": "hello",
        "raw": b"\x00",
        "counts": [("x", 2)],
    }
    assert values[1] is not None, "a message of defaults is empty, and a message"
    assert (values[1]["at"], values[1]["note"], values[1]["id"]) == (None, None, 0)
    assert errors[:2] == [None, None]
    assert errors[2] is not None


def test_framed_protobuf_of_a_generated_class(tmp_path: Path) -> None:
    format_ = with_message(protobuf("google.protobuf.timestamp_pb2:Timestamp", framed=True), tmp_path)
    read = reader_of(format_)
    data = timestamp_pb2.Timestamp(seconds=5).SerializeToString()
    assert read(b"\x00\x00\x00\x00\x07\x00" + data) == {"seconds": 5, "nanos": 0}
    with pytest.raises(ValueError, match="without a schema registry"):
        read(b"\x08\x00\x00" + data)


def test_avro_by_a_registry_and_what_happens_without_it() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "note", "type": "string", "default": "none"}]}
    with FakeRegistry() as registry:
        schema_id = SchemaRegistry(registry.url).register("orders-value", Schema(json.dumps(old)))
        format_ = avro(new, registry=registry.url)
        framed = prefix(schema_id) + written(old, {"id": 5})
        values, errors = decode_batch(format_, [framed, prefix(99) + b"x", written(old, {"id": 5})])
        assert values == [{"id": 5, "note": "none"}, None, None], "it is read as the pipeline wants it"
        assert errors[0] is None
        assert "Schema not found" in str(errors[1])
        assert "written without a registry" in str(errors[2])
    with pytest.raises(RegistryError, match="no schema registry could be reached"):
        decode_batch(format_, [framed])


SCHEMA = json.loads(
    """{"type": "struct", "fields": [
        {"name": "id", "type": "long"}, {"name": "amount", "type": "double"}, {"name": "ok", "type": "boolean"},
        {"name": "at", "type": "timestamp"}, {"name": "name", "type": "string"},
        {"name": "tags", "type": {"type": "array", "elementType": "integer"}},
        {"name": "inner", "type": {"type": "struct", "fields": [{"name": "x", "type": "integer"}]}}]}"""
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty, not JSON"),
        (b"{", "it is not JSON: Expecting property name enclosed in double quotes at character 1"),
        (b"\xff", "it is not UTF-8: invalid start byte at byte 0"),
        (b"[1]", "it is a list, not an object"),
        (b"null", "it is null, not an object"),
        (b"5", "it is a number, not an object"),
        (b'{"id": "x"}', 'field id is "x", not a long'),
        (b'{"id": 1.5}', "field id is 1.5, not a long"),
        (b'{"id": true}', "field id is true, not a long"),
        (b'{"amount": "12,50"}', 'field amount is "12,50", not a double'),
        (b'{"ok": 1}', "field ok is 1, not a boolean"),
        (b'{"id": "', "it is not JSON: Unterminated string starting at character 7"),
        (b'{"at": "tomorrow"}', 'field at is "tomorrow", not a timestamp'),
        (b'{"at": "2026-01-02T03:04:05Z", "tags": 5}', "field tags is 5, not a list"),
        (b'{"at": "2/1/26", "tags": 5}', "field tags is 5, not a list"),
        (b'{"tags": 5}', "field tags is 5, not a list"),
        (b'{"tags": [1, null, "a"]}', 'field tags[2] is "a", not a integer'),
        (b'{"inner": {"x": []}}', "field inner.x is [], not a integer"),
        (b'{"inner": 3}', "field inner is 3, not an object"),
        (b'{"id": 1, "name": 5}', "it does not fit the schema"),
    ],
)
def test_why_json_cannot_be_read(data: bytes, reason: str) -> None:
    assert json_fault(data, SCHEMA) == reason


def test_a_long_value_is_shown_in_part() -> None:
    assert len(json_fault(json.dumps({"id": "x" * 1000}).encode(), SCHEMA)) < 120
