"""A topic as a table: everything between two points, planned when the query is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from tidelog.pipelines.source.filters import Narrowing, narrow
from tidelog.pipelines.source.options import SourceOptions
from tidelog.pipelines.source.reading import RangePartition, read_ranges
from tidelog.pipelines.source.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType


class FilterPushing:
    """Takes filters where Spark hands them over.

    Spark refuses readers with a `pushFilters` of their own unless spark.sql.python.filterPushdown.enabled is true. Here
    filters only save work, and Spark applies them all the same, so there is nothing to refuse: it is told that this is
    the method that every reader has.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.narrow(filters)
        return filters


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SourceOptions.parse(options).for_batch()
        self._columns = columns_of(schema)
        self._narrowing = Narrowing()

    @property
    def pushFilters(self) -> FilterPushing:  # noqa: N802 - Spark's name
        return FilterPushing(self)

    def narrow(self, filters: Sequence[Filter]) -> None:
        if self._options.push_filters:
            self._narrowing = narrow(filters)

    def partitions(self) -> Sequence[InputPartition]:
        from tidelog.pipelines.source.batch_planning import plan_batch  # noqa: PLC0415 - tasks need none of it

        return plan_batch(self._options, self._narrowing)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in where nothing is to be read
        return read_ranges(self._options, self._columns, partition)
