"""Frames of pipelines in a real session: decoding, keys, schemas found out, encoding, views. Rows come from files."""

from __future__ import annotations

import io
import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from fake_registry import FakeRegistry
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from tidelog.pipelines import PipelineError, avro, read, write
from tidelog.pipelines import json as json_format
from tidelog.pipelines.decoding.decoding import Part, decode, readable, unreadable
from tidelog.pipelines.definition.loading import load
from tidelog.pipelines.definition.sinks import TopicWrite
from tidelog.pipelines.definition.sources import TopicRead
from tidelog.pipelines.runner.beginnings import Beginnings
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.pipelines.runner.encoding import encode
from tidelog.pipelines.runner.frames import build_frame
from tidelog.pipelines.runner.reading import SourceReader, exclusion
from tidelog.pipelines.runner.schemas import Schemas
from tidelog.pipelines.runner.writing import Run, start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipelines.definition.formats import Format
    from tidelog.pipelines.definition.sources import Source

pytest_plugins = ["spark_fixtures"]
pytestmark = pytest.mark.timeout(900)

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
RECORDS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


@pytest.fixture
def directory(tmp_path: Path) -> PipelineDirectory:
    directory = PipelineDirectory(tmp_path, "sales")
    directory.path.mkdir()
    return directory


@pytest.fixture
def schemas(spark: SparkSession, directory: PipelineDirectory, tmp_path: Path) -> Schemas:
    return Schemas(spark, directory, tmp_path)


@pytest.fixture
def beginnings(directory: PipelineDirectory) -> Beginnings:
    return Beginnings(directory)


def records(spark: SparkSession, *values: tuple[bytes | None, bytes | None]) -> DataFrame:
    rows = [(key, value, "orders", 0, at, None, None) for at, (key, value) in enumerate(values)]
    return spark.createDataFrame(rows, RECORDS)


def part(schemas: Schemas, column: str, given: Format, rows: DataFrame) -> Part:
    return schemas.part("orders", column, given, lambda: rows)


def avro_bytes(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    return out.getvalue()


def test_json_that_fits_becomes_columns_and_the_rest_has_reasons(spark: SparkSession, schemas: Schemas) -> None:
    rows = records(
        spark,
        (b"a", b'{"id": 1, "at": "2026-01-01T00:00:00Z", "new": true}'),
        (b"b", b'{"id": "x"}'),
        (b"c", b"{"),
        (b"d", b""),
        (b"e", None),
        (b"\xff", b'{"id": 2}'),
        (b"g", b"[1]"),
        (b"h", b"null"),
        (None, b'{"id": null}'),
    )
    given = read.topic("orders", value=json_format("id long, at timestamp"), key="name").reads
    assert isinstance(given, TopicRead)
    assert given.key is not None
    parts = [part(schemas, "key", given.key, rows), part(schemas, "value", given.value, rows)]
    good = readable(decode(rows, parts), parts, ("offset",), "drop", "drop").collect()
    assert [(row.name, row.id, row._offset) for row in good] == [("a", 1, 0), (None, None, 8)]
    kept = readable(decode(rows, parts), parts, (), "keep", "drop").collect()
    assert [row.name for row in kept] == ["a", "e", None]
    bad = {row.offset: row.error for row in unreadable(decode(rows, parts), parts).collect()}
    assert bad == {
        1: 'value: field id is "x", not a long',
        2: "value: it is not JSON: Expecting property name enclosed in double quotes at character 1",
        3: "value: it is empty, not JSON",
        5: "key: it is not UTF-8",
        6: "value: it is a list, not an object",
        7: "value: it is null, not an object",
    }
    with pytest.raises(Exception, match="malformed record in orders-0 at offset 1"):
        readable(decode(rows.where("offset = 1"), parts), parts, (), "drop", "fail").collect()


def test_framed_json_and_schemas_found_out_once(spark: SparkSession, schemas: Schemas, tmp_path: Path) -> None:
    rows = records(spark, (None, b'\x00\x00\x00\x00\x05{"id": 1, "tags": ["a"]}'), (None, b'{"id": 2}'))
    found = part(schemas, "value", json_format(framed=True), rows)
    assert found.fields.simpleString() == "struct<id:bigint,tags:array<string>>"
    assert [row.id for row in readable(decode(rows, [found]), [found], (), "drop", "drop").collect()] == [1]
    (bad,) = unreadable(decode(rows, [found]), [found]).collect()
    assert "written without a registry" in bad.error

    others = records(spark, (None, b'\x00\x00\x00\x00\x05{"other": 1}'))
    again = Schemas(spark, PipelineDirectory(tmp_path, "sales"), tmp_path)
    assert part(again, "value", json_format(framed=True), others).fields == found.fields, "it is pinned"
    with pytest.raises(PipelineError, match="source orders: key: there are no JSON records yet"):
        part(schemas, "key", json_format(), records(spark))


def test_avro_in_python_workers(spark: SparkSession, schemas: Schemas, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO), encoding="utf-8")
    rows = records(spark, (b"k", avro_bytes({"id": 5, "note": "x"})), (b"k", b"\x80"), (b"k", None))
    value = part(schemas, "value", avro("order.avsc"), rows)
    decoded = decode(rows, [value])
    assert [(row.id, row.note) for row in readable(decoded, [value], (), "drop", "drop").collect()] == [(5, "x")]
    (bad,) = unreadable(decoded, [value]).collect()
    assert (bad.offset, bad.value) == (1, b"\x80")
    with pytest.raises(PipelineError, match="cannot be read"):
        part(schemas, "value", avro("none.avsc"), rows)


def test_rows_become_records(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(
        [(1, "a", None, False), (2, "b", 3, True)], "id int, name string, n int, _deleted boolean"
    )
    topic = write.topic("out", key="id", headers="name").writes
    assert isinstance(topic, TopicWrite)
    found = encode(rows.drop("_deleted"), topic, tmp_path).collect()
    assert [(row.key, bytes(row.value)) for row in found] == [("1", b'{"id":1,"n":null}'), ("2", b'{"id":2,"n":3}')]
    assert [(header.key, bytes(header.value)) for header in found[0].headers] == [("name", b"a")]

    table = write.table("out", key=["id", "name"]).writes
    assert isinstance(table, TopicWrite)
    one, two = encode(rows, table, tmp_path).collect()
    assert one.key == '{"id":1,"name":"a"}'
    assert two.value is None, "a deleted row is a tombstone"

    typed = write.topic("out", value=avro({**AVRO, "fields": [{"name": "id", "type": "int"}]})).writes
    assert isinstance(typed, TopicWrite)
    assert [bytes(row.value) for row in encode(rows.select("id"), typed, tmp_path).collect()] == [b"\x02", b"\x04"]
    with pytest.raises(PipelineError, match="no column 'ids' for the record: did you mean 'id'"):
        encode(rows, write.topic("out", key="ids").writes, tmp_path)  # type: ignore[arg-type]


def test_avro_written_and_read_by_a_registry(spark: SparkSession, schemas: Schemas, tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        out = write.topic("orders", value=avro(AVRO, registry=registry.url)).writes
        assert isinstance(out, TopicWrite)
        rows = spark.createDataFrame([(1, "a"), (2, None)], "id long, note string")
        values = [(None, bytes(row.value)) for row in encode(rows, out, tmp_path).collect()]
        assert registry.subjects.keys() == {"orders-value"}
        stored = records(spark, *values)
        value = part(schemas, "value", avro(registry=registry.url), stored)
        assert value.fields.simpleString() == "struct<id:bigint,note:string>", "the first record tells its schema"
        found = readable(decode(stored, [value]), [value], (), "drop", "drop").collect()
        assert [(row.id, row.note) for row in found] == [(1, "a"), (2, None)]


PIPELINE = """
    from pyspark.sql import functions as F
    from tidelog.pipelines import read, view, write

    orders = read.files("{path}", format="json", schema="id long, amount double, at timestamp",
                        watermark=("at", "1 minute"), deduplicate="id")

    @view
    def large(orders):
        return orders.where("amount > 10")

    @write.parquet("{path}-out")
    def minutes(large, spark):
        assert spark.version
        totals = large.groupBy(F.window("at", "1 minute")).agg(F.sum("amount").alias("total"))
        return totals.select("window.start", "total")

    @write.console()
    def nothing(orders):
        return None
"""


def test_patterns_leave_the_dead_letters_out_and_what_the_user_does() -> None:
    def excluded(source: Source) -> dict[str, str]:
        assert isinstance(source.reads, TopicRead)
        return exclusion(source.reads, "shop.dead-letters")

    assert excluded(read.topic(pattern="shop.*")) == {"excludeTopics": "shop.dead-letters"}
    given = read.topic(pattern="shop.*", options={"excludetopics": "shop.old"})
    assert excluded(given) == {"excludeTopics": "shop.old,shop.dead-letters"}
    assert excluded(read.topic("shop.dead-letters")) == {}, "whoever names it means it"


def test_a_pipeline_over_files(spark: SparkSession, schemas: Schemas, beginnings: Beginnings, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines = [
        {"id": at // 2, "amount": 10.0 + at // 2, "at": f"2026-01-01T00:{at // 2:02d}:00Z"} for at in range(20)
    ] + [{"id": 99, "amount": 1.0, "at": "2026-01-01T01:00:00Z"}]
    (source / "a.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    file = tmp_path / "over_files.py"
    file.write_text(dedent(PIPELINE).format(path=source), encoding="utf-8")
    pipeline = load(file)
    reader = SourceReader(spark, schemas, beginnings, {})
    shown: list[Any] = []

    def run(name: str) -> Run:
        return Run(name, str(tmp_path / "check" / name), None, True, {}, tmp_path, lambda *given: shown.append(given))

    minutes, nothing = pipeline.queries
    rows = build_frame(spark, pipeline, minutes.view, reader, "group")
    query = start(rows, minutes.sink, run("minutes"))
    assert query is not None
    query.awaitTermination()
    totals = spark.read.parquet(f"{source}-out").orderBy("start").collect()
    assert [row.total for row in totals] == [11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0]

    with pytest.raises(PipelineError, match="nothing returns nothing, not a DataFrame"):
        build_frame(spark, pipeline, nothing.view, reader, "group")

    query = start(build_frame(spark, pipeline, "orders", reader, "group"), nothing.sink, run("shown"))
    assert query is not None
    query.awaitTermination()
    ((name, batch, columns, found, more),) = shown
    assert (name, batch, columns, len(found), more) == ("shown", 0, ["id", "amount", "at"], 11, False)


def test_what_a_query_remembers_is_kept_though_few_rows_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    shown: list[Any] = []
    run = Run("s", str(tmp_path / "check"), None, True, {}, tmp_path, lambda *given: shown.append(given))
    rows = spark.readStream.schema("id long, at timestamp").json(str(source))
    fresh = rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])
    for number in range(2):
        lines = [json.dumps({"id": at, "at": "2026-01-01T00:00:00Z"}) for at in range(40 + number)]
        (source / f"{number}.json").write_text("\n".join(lines), encoding="utf-8")
        query = start(fresh, write.console(rows=1), run)
        assert query is not None
        query.awaitTermination()
    assert [(len(found), more) for _, _, _, found, more in shown] == [(1, True), (1, False)]
    assert shown[1][3][0]["id"] == 40, "all others were seen before"


def test_a_row_of_a_table_has_a_key(spark: SparkSession, tmp_path: Path) -> None:
    sink = write.table("sums", key="id")
    assert isinstance(sink.writes, TopicWrite)
    rows = spark.createDataFrame([("a", 1), (None, 2)], "id string, n int")
    assert encode(rows.where("id = 'a'"), sink.writes, tmp_path).collect()[0]["key"] == "a"
    with pytest.raises(PySparkException, match="row without a key for table sums: id is null"):
        encode(rows, sink.writes, tmp_path).collect()


def test_tables_of_databases(spark: SparkSession, schemas: Schemas, beginnings: Beginnings, tmp_path: Path) -> None:
    """Derby's jar is among Spark's."""
    url = f"jdbc:derby:{tmp_path / 'shop'};create=true"
    run = Run("db", str(tmp_path / "check"), None, True, {}, tmp_path, lambda *_given: None)
    driver = {"driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    rows = spark.range(5).select("id", (F.col("id") * 2).alias("twice"))
    sink = write.jdbc(url, table="numbers", options=driver)
    assert start(rows, sink, run) is None, "nothing streams: all is written"
    start(rows, sink, run)
    reader = SourceReader(spark, schemas, beginnings, {})
    table = reader.frame("numbers", read.jdbc(url, table="numbers", options=driver), "group")
    assert (table.count(), table.where("id = 3").first()["twice"]) == (10, 6)  # type: ignore[index]
    one = reader.frame("one", read.jdbc(url, query='SELECT max("id") AS top FROM numbers', options=driver), "group")
    assert [row[0] for row in one.collect()] == [4]
    start(rows, write.jdbc(url, table="numbers", mode="complete", options=driver), run)
    assert reader.frame("numbers", read.jdbc(url, table="numbers", options=driver), "group").count() == 5
