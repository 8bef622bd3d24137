"""A topic as a stream. What the driver decides is in `StreamPlanner`; tasks only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.pipelines.source.marks import Mark
from tidelog.pipelines.source.options import SourceOptions
from tidelog.pipelines.source.reading import RangePartition, read_ranges
from tidelog.pipelines.source.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from tidelog.pipelines.source.stream_planning import StreamPlanner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pickled for the tasks, which get it without the planner."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SourceOptions.parse(options).for_stream()
        self._columns = columns_of(schema)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    # What the driver calls

    @property
    def planner(self) -> StreamPlanner:
        if self._planner is None:
            from tidelog.pipelines.source.stream_planning import StreamPlanner  # noqa: PLC0415 - tasks need none of it

            self._planner = StreamPlanner(self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.planner.initial().to_document()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - same
        unlimited = isinstance(limit, ReadAllAvailable)
        return self.planner.latest(Mark.from_document(start), unlimited=unlimited).to_document()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - same
        self.planner.stop_at_what_there_is()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.planner.tasks(Mark.from_document(start), Mark.from_document(end))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - same
        """Only tells Spark that there is one: the planner has the options, of which Spark could take one."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - same
        ends = self.planner.reported()
        return None if ends is None else ends.to_document()

    def stop(self) -> None:
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    # What a task calls

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, RangePartition), "Spark gives tasks what `partitions` gave it"
        return read_ranges(self._options, self._columns, partition)
