"""Which schemas a sink takes, and what it says of the others."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.pipelines.sink.batch import batch_writer
from tidelog.pipelines.sink.columns import SchemaMismatch, check_columns
from tidelog.pipelines.sink.stream import stream_writer

BINARY, INT, LONG, STRING, TIMESTAMP = BinaryType(), IntegerType(), LongType(), StringType(), TimestampType()


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


HEADERS = ArrayType(struct(key=STRING, value=BINARY))


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        (struct(value=BINARY), "t"),
        (struct(value=STRING, key=BINARY), "t"),
        (struct(value=STRING, key=STRING, topic=STRING), None),
        (struct(value=STRING, topic=STRING, partition=INT, timestamp=TIMESTAMP), None),
        (struct(value=STRING, headers=HEADERS), "t"),
        # what the source gives
        (
            struct(
                key=BINARY,
                value=BINARY,
                topic=STRING,
                partition=INT,
                offset=LONG,
                timestamp=TIMESTAMP,
                timestampType=INT,
                headers=HEADERS,
            ),
            None,
        ),
        # the option wins, so that the column does not matter
        (struct(value=STRING, topic=INT), "t"),
    ],
)
def test_what_can_be_written(columns: StructType, topic: str | None) -> None:
    check_columns(columns, topic)


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        (struct(key=STRING), "t", ["'value'", "to_json"]),
        (struct(Value=STRING), "t", ["'value'", "rename 'Value'"]),
        (struct(value=INT), "t", ["'value' is int", "string or binary"]),
        (struct(value=struct(a=INT)), "t", ["'value' is struct<a:int>"]),
        (struct(value=STRING, key=LONG), "t", ["'key' is bigint", "string or binary"]),
        (
            struct(value=STRING, headers=MapType(STRING, BINARY)),
            "t",
            ["is map<string,binary>", "array<struct"],
        ),
        (struct(value=STRING, headers=ArrayType(struct(key=STRING, value=INT))), "t", ["'headers'"]),
        (struct(value=STRING, headers=ArrayType(struct(name=STRING, value=BINARY))), "t", ["'headers'"]),
        (struct(value=STRING, topic=INT), None, ["'topic' is int", "string"]),
        (struct(value=STRING, partition=STRING), "t", ["'partition' is string", "int"]),
        (struct(value=STRING, timestamp=STRING), "t", ["'timestamp' is string", "timestamp"]),
        (struct(value=STRING), None, ["option topic", "column 'topic'"]),
    ],
)
def test_what_cannot(columns: StructType, topic: str | None, says: list[str]) -> None:
    with pytest.raises(SchemaMismatch) as raised:
        check_columns(columns, topic)
    assert "\n" not in str(raised.value)
    for each in says:
        assert each in str(raised.value)


@pytest.mark.parametrize("make", [stream_writer, batch_writer])
def test_it_is_said_when_the_query_is_planned(make: object) -> None:
    options = {"kafka.bootstrap.servers": "nowhere:1", "topic": "t"}
    with pytest.raises(SchemaMismatch, match="'value' is bigint"):
        make(options, struct(value=LONG), overwrite=False)  # type: ignore[operator]
