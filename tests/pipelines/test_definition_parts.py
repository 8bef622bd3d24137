"""Sources, sinks, formats and lengths of time: what is taken, and what is refused in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidelog.pipelines import PipelineError, Settings, avro, json, protobuf, read, text, view, write
from tidelog.pipelines.definition.durations import seconds, spark_interval
from tidelog.pipelines.definition.formats import Format, as_format
from tidelog.pipelines.definition.sources import TableRead, TopicRead, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG: Any = "wrong"
WRONG_SCHEMA: Any = 5


@pytest.mark.parametrize(
    ("given", "length_s"),
    [
        ("10 minutes", 600),
        ("500 ms", 0.5),
        ("1 hour 30 minutes", 5400),
        ("2s", 2),
        ("1.5 seconds", 1.5),
        ("1 day", 86400),
    ],
)
def test_lengths_of_time(given: str, length_s: float) -> None:
    assert seconds(given, "x") == length_s


@pytest.mark.parametrize("given", ["", "soon", "10", "10 parsecs", "minutes", "10 minutes or so"])
def test_what_is_no_length_of_time(given: str) -> None:
    with pytest.raises(PipelineError, match="the trigger is"):
        seconds(given, "the trigger")


def test_spark_gets_milliseconds() -> None:
    assert spark_interval("1 hour 1.5 seconds", "x") == "3601500 milliseconds"


def test_a_topic_is_read_as_it_says() -> None:
    source = read.topic(
        "a", "b", value=json({"id": "long", "at": "timestamp"}), key="sku", watermark=("at", "1 hour"), deduplicate="id"
    )
    reads = source.reads
    assert isinstance(reads, TopicRead)
    assert reads.topics == ("a", "b")
    assert reads.value == Format("json", schema="`id` long, `at` timestamp")
    assert reads.key == text("sku")
    assert reads.on_error == "dead-letter"
    assert source.watermark == Watermark("at", "1 hour")
    assert source.deduplicate == ("id",)
    assert source.streams


def test_a_table_does_not_stream() -> None:
    source = read.table("products", key="sku", value="json")
    assert isinstance(source.reads, TableRead)
    assert not source.streams


def test_a_source_decorates_what_prepares_its_rows_and_stays_callable() -> None:
    @read.rate(5)
    def ticks(rows: Any) -> Any:
        return f"prepared {rows}"

    assert ticks("rows") == "prepared rows"
    assert ticks.reads.rows_per_second == 5


def test_a_view_stays_callable_and_knows_its_inputs() -> None:
    @write.console()
    @write.topic("out", key="id")
    @view
    def joined(orders: Any, products: Any, limit: int = 3) -> Any:
        return orders, products, limit

    assert joined.inputs == ("orders", "products")
    assert [sink.kind for sink in joined.sinks] == ["topic", "console"]
    assert joined(1, 2) == (1, 2, 3)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (read.topic, "names them, or gives a pattern"),
        (lambda: read.topic("a", pattern="b"), "names them, or gives a pattern"),
        (lambda: read.topic("a", value="jason"), "did you mean 'json'"),
        (lambda: read.topic("a", value={"format": "json", "shema": "id long"}), "shema"),
        (lambda: read.topic("a", value=3), "give a format"),
        (lambda: read.topic("a", metadata=["ofset"]), "did you mean 'offset'"),
        (lambda: read.topic("a", on_error=WRONG), "dead-letter, drop, fail"),
        (lambda: read.topic("a", tombstones=WRONG), "drop, keep"),
        (lambda: read.topic("a", deduplicate="id"), "needs a watermark"),
        (lambda: read.topic("a", watermark="at"), "how late"),
        (lambda: read.topic("a", watermark=("at", "late")), "no length of time"),
        (lambda: read.topic("a", watermark={"at": "1 s", "b": "1 s"}), "how late"),
        (lambda: read.jdbc("jdbc:x"), "names a table, or gives a query"),
        (lambda: read.jdbc("jdbc:x", table="t", query="q"), "names a table, or gives a query"),
        (write.topic, "names one"),
        (lambda: write.topic("a", mode=WRONG), "append, update, complete"),
        (lambda: write.topic("a", delivery=WRONG), "exactly-once"),
        (lambda: write.table("a", key=()), "needs a key"),
        (avro, "needs a schema"),
        (lambda: protobuf("Order"), "module:Message"),
        (lambda: json(WRONG_SCHEMA), "a schema is text"),
        (lambda: view(len), "a function from DataFrames"),
        (lambda: view(lambda *frames: frames), "names of sources and views"),
        (lambda: read.rate()(5), "decorates a function"),
        (lambda: Settings(name="a/b"), "letters, digits"),
        (lambda: Settings(trigger="often"), "the trigger"),
        (lambda: Settings(kafka={"kafka.sasl.username": "x"}), "without 'kafka.'"),
        (lambda: Settings(kafka={"compresion.type": "zstd"}), "did you mean 'compression.type'"),
        (lambda: Settings(kafka={"colour": "red"}), "neither consumers nor producers have a setting 'colour'$"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(build: Callable[[], object], told: str) -> None:
    with pytest.raises(PipelineError, match=told) as refused:
        build()
    assert "\n" not in str(refused.value)


def test_formats_by_name_and_by_mapping() -> None:
    assert as_format("text", "value") == text("text")
    assert as_format({"format": "avro", "schema": '{"type":"record"}'}, "value").schema == '{"type":"record"}'
    assert as_format({"format": "protobuf", "message": "m:Order", "framed": True}, "value").framed
    with pytest.raises(PipelineError, match="value: avro needs"):
        as_format("avro", "value")


def test_a_struct_type_is_a_schema() -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("id", LongType())])
    assert json(schema).schema == schema.json()
