"""Frames of sources: what Spark reads, decoded, with their watermarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from tidelog.pipelines.decoding.decoding import decode, readable, unreadable
from tidelog.pipelines.definition.durations import spark_interval
from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.definition.sources import FilesRead, JdbcRead, RateRead, TableRead, TopicRead
from tidelog.pipelines.options import KAFKA_PREFIX, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipelines.decoding.decoding import Part
    from tidelog.pipelines.definition.sources import Source, Watermark
    from tidelog.pipelines.runner.beginnings import Beginnings
    from tidelog.pipelines.runner.schemas import Schemas

FORMAT: Final = "tidelog"
_EXCLUDE: Final = "excludeTopics"
_PLACE: Final = ("key", "value", "topic", "partition", "offset")


class SourceReader:
    def __init__(
        self,
        spark: SparkSession,
        schemas: Schemas,
        beginnings: Beginnings,
        kafka: Mapping[str, str],
        dead_letter_topic: str | None = None,
    ) -> None:
        """`kafka` are the consumers' settings, with the prefix. No pattern means the dead-letter topic: what cannot be
        read would come back for ever."""
        self._spark = spark
        self._schemas = schemas
        self._beginnings = beginnings
        self._kafka = dict(kafka)
        self._dead_letter_topic = dead_letter_topic

    def settle(self, name: str, source: Source, groups: Sequence[str]) -> None:
        """Before any of the groups' queries starts: where all of them begin."""
        reads = source.reads
        if not isinstance(reads, TopicRead):
            return
        try:
            self._beginnings.settle(name, {group: self._options(reads, group) for group in groups})
        except OptionError as error:
            raise PipelineError(f"source {name}: {error}") from error

    def frame(self, name: str, source: Source, group: str) -> DataFrame:
        """The source's rows; positions are committed to `group`, so that every tool shows the lag."""
        reads = source.reads
        if isinstance(reads, TopicRead):
            rows = self._topic(name, reads, group)
        elif isinstance(reads, TableRead):
            rows = self._table(name, reads)
        elif isinstance(reads, FilesRead):
            rows = self._files(name, reads)
        elif isinstance(reads, JdbcRead):
            rows = self._jdbc(reads)
        else:
            rows = self._rate(reads)
        rows = with_watermark(rows, source.watermark)
        if source.deduplicate:
            rows = rows.dropDuplicatesWithinWatermark(list(source.deduplicate))
        return rows if source.function is None else source.function(rows)

    def malformed(self, name: str, source: Source, group: str) -> DataFrame:
        """Records of the source that cannot be decoded, and why."""
        reads = source.reads
        assert isinstance(reads, TopicRead | TableRead)
        parts = self._parts(name, reads)
        columns = {*_PLACE, "timestamp", "headers"}
        if isinstance(reads, TopicRead):
            raw = self._stream(name, reads, group, columns)
        else:
            options = {"subscribe": reads.topic, "startingOffsets": "earliest", **reads.options}
            raw = self._load_stream(self._of_consumer(options, group), columns)
        return unreadable(decode(raw, parts), parts)

    def _topic(self, name: str, reads: TopicRead, group: str) -> DataFrame:
        parts = self._parts(name, reads)
        columns = {*_PLACE, *reads.metadata} if reads.on_error == "fail" else {"value", *reads.metadata}
        if reads.key is not None:
            columns.add("key")
        rows = decode(self._stream(name, reads, group, columns), parts)
        return readable(rows, parts, reads.metadata, reads.tombstones, reads.on_error)

    def _stream(self, name: str, reads: TopicRead, group: str, columns: set[str]) -> DataFrame:
        return self._load_stream(self._beginnings.within(self._options(reads, group), name, group), columns)

    def _options(self, reads: TopicRead, group: str) -> dict[str, str]:
        return self._of_consumer({**reads.stream_options, **exclusion(reads, self._dead_letter_topic)}, group)

    def _of_consumer(self, options: Mapping[str, str], group: str) -> dict[str, str]:
        return {"kafka.group.id": group, **self._kafka, **options}

    def _load_stream(self, options: Mapping[str, str], columns: set[str]) -> DataFrame:
        chosen = {"columns": ",".join(sorted(columns)), **options}
        return self._spark.readStream.format(FORMAT).options(**chosen).load()

    def _table(self, name: str, reads: TableRead) -> DataFrame:
        """Keys stay in their partition, so that the highest offset is the latest.

        Spark plans a source in Python once and for all, unless it has filters to hand over: then anew for each batch.
        """
        parts = self._parts(name, reads)
        options = {"subscribe": reads.topic, "columns": ",".join(_PLACE), **self._kafka, **reads.options}
        records = self._spark.read.format(FORMAT).options(**options).load().where("offset >= 0")
        place = F.struct("partition", "offset")
        latest = records.groupBy("key").agg(
            F.max_by("value", place).alias("value"),
            F.max_by("topic", place).alias("topic"),
            F.max_by("partition", place).alias("partition"),
            F.max_by("offset", place).alias("offset"),
        )
        return readable(decode(latest, parts), parts, (), "drop", reads.on_error)

    def _parts(self, name: str, reads: TopicRead | TableRead) -> list[Part]:
        def sample() -> DataFrame:
            if isinstance(reads, TopicRead):
                subscribed = {**reads.subscription, **exclusion(reads, self._dead_letter_topic)}
            else:
                subscribed = {"subscribe": reads.topic}
            own = {name: value for name, value in reads.options.items() if name.lower().startswith(KAFKA_PREFIX)}
            options = {**subscribed, "columns": "key,value", **self._kafka, **own}
            return self._spark.read.format(FORMAT).options(**options).load()

        given = [] if reads.key is None else [("key", reads.key)]
        return [
            self._schemas.part(name, column, format_, sample) for column, format_ in [*given, ("value", reads.value)]
        ]

    def _files(self, name: str, reads: FilesRead) -> DataFrame:
        schema = self._schemas.files(
            name,
            reads.schema,
            lambda: self._spark.read.format(reads.format).options(**reads.options).load(reads.path).schema,
        )
        return self._spark.readStream.format(reads.format).schema(schema).options(**reads.options).load(reads.path)

    def _jdbc(self, reads: JdbcRead) -> DataFrame:
        what = {"dbtable": reads.table} if reads.table is not None else {"query": reads.query or ""}
        return self._spark.read.format("jdbc").options(url=reads.url, **what, **reads.options).load()

    def _rate(self, reads: RateRead) -> DataFrame:
        options = {"rowsPerSecond": str(reads.rows_per_second), **reads.options}
        return self._spark.readStream.format("rate").options(**options).load()


def with_watermark(rows: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return rows
    return rows.withWatermark(watermark.column, spark_interval(watermark.delay, f"the watermark of {watermark.column}"))


def exclusion(reads: TopicRead, dead_letter_topic: str | None) -> dict[str, str]:
    """What a pattern does not mean: the pipeline's own dead letters, and what the source's options name."""
    if reads.pattern is None or dead_letter_topic is None:
        return {}
    given = [topics for name, topics in reads.options.items() if name.lower() == _EXCLUDE.lower()]
    return {_EXCLUDE: ",".join([*given, dead_letter_topic])}
