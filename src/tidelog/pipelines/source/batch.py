"""A topic as a table: everything between two points, planned when the query is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from tidelog.pipelines.source.batch_planning import plan_batch
from tidelog.pipelines.source.options import SourceOptions
from tidelog.pipelines.source.reading import RangePartition, read_range
from tidelog.pipelines.source.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SourceOptions.parse(options).for_batch()
        self._columns = columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return plan_batch(self._options)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in where nothing is to be read
        return read_range(self._options, self._columns, partition)
