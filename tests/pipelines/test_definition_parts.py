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
WRONG_TOPICS: Any = ["a", "b"]
WRONG_OFFSETS: Any = {"a": 5}


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
        (lambda: read.topic("a", starting="begining"), "^starting is earliest, latest, group or JSON, not 'begining'$"),
        (
            lambda: read.topic("a", starting=WRONG_SCHEMA),
            "^starting is earliest, latest, group or JSON of offsets, not",
        ),
        (lambda: read.topic("a", starting={"a": {"0": -3}}), "^starting: offsets are at least 0"),
        (lambda: read.topic("a", starting=WRONG_OFFSETS), "^starting is JSON such as"),
        (lambda: read.topic("a", max_per_trigger=0), "^max_per_trigger is a whole number of at least 1, not 0$"),
        (lambda: read.topic("a", max_per_trigger=WRONG), "^max_per_trigger is a whole number"),
        (lambda: read.topic("a", options={"failOnDataLos": True}), "did you mean failOnDataLoss"),
        (lambda: read.topic("a", options={"endingOffsets": "latest"}), "makes no sense in a stream"),
        (lambda: read.topic("a", max_per_trigger=5, options={"minOffsetsPerTrigger": 10}), "is more than max"),
        (lambda: read.topic("a", options={"includeHeaders": True}), "`metadata` names what is wanted"),
        (lambda: read.topic(WRONG_SCHEMA), "a name is text, not 5"),
        (lambda: read.topic(pattern=WRONG_SCHEMA), "the pattern is text, not 5"),
        (lambda: read.table(WRONG_SCHEMA, key="k", value="json"), "the topic is text, not 5"),
        (lambda: read.table("a", key="k", value="json", options={"endingOffsets": "latest"}), "no sense in a stream"),
        (lambda: read.topic(pattern="a["), "subscribePattern is a regular expression"),
        (lambda: read.table("a", key="k", value="json", options={"maxBytesPerTrigger": 1}), "no sense in a batch"),
        (lambda: read.rate(0), "^rows_per_second is a whole number"),
        (lambda: write.topic("a", partitions=0), "^partitions is a whole number"),
        (lambda: write.topic("a", options={"kafka.acks": 1}), "kafka.acks is all"),
        (lambda: json("id long, at timestmp"), "^at: there is no type 'timestmp': did you mean 'timestamp'"),
        (lambda: json("id long, id string"), "^two columns are named 'id'$"),
        (lambda: write.topic(WRONG_TOPICS), "^the topic is text, not "),
        (lambda: write.parquet(WRONG_OFFSETS), "^the path is text, not "),
        (lambda: write.console(rows=-1), "^rows is a whole number of at least 1, not -1$"),
        (lambda: read.topic("a", options={"pushFilters": True}), "no sense in a stream: Spark hands over no filters"),
        (lambda: json({"id": "lng"}), "^id: there is no type 'lng'"),
        (lambda: read.files("/in", schema="a struct<b: array<strin>>"), "^b: there is no type 'strin'"),
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


@pytest.mark.parametrize(
    "schema",
    [
        "id long, at TIMESTAMP NOT NULL COMMENT 'when, or so: \\' foo bar', b:string",
        "`a b` decimal(10, 2), `x``y` map<string, array<struct<c: int, d varchar(10)>>>",
        "i interval day to second, t time(6), s string collate UNICODE, g geometry(4326), v variant",
        "id long, -- number, given by the shop\n at timestamp /* when, or so */",
        "a struct<b: array<int>> COMMENT 'x < y, foo bar > z', c map<string, int> NOT NULL",
        "id",
        "long",
        "",
        "a struct<>",
    ],
)
def test_types_that_there_are_pass_and_the_rest_is_for_spark_to_tell(schema: str) -> None:
    assert json(schema).schema == schema


def test_what_only_a_group_or_no_letters_need_is_taken() -> None:
    read.topic("a", starting="group", options={"kafka.auto.offset.reset": "latest"})
    read.table("a", key="k", value="json", on_error="drop", options={"endingOffsets": "latest"})


def test_offsets_to_start_at_are_text_or_a_mapping() -> None:
    for starting in ('{"a": {"0": 5}}', {"a": {0: 5}}):
        reads = read.topic("a", starting=starting).reads
        assert isinstance(reads, TopicRead)
        assert reads.starting == '{"a": {"0": 5}}'


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
