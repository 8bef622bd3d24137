"""The data source that Spark knows as `tidelog`. It only hands over to `source/` and `sink/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class TidelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        from tidelog.pipelines.source.schema import schema_of  # noqa: PLC0415 - writers need none of it

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.pipelines.source.batch import BatchReader  # noqa: PLC0415 - same

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from tidelog.pipelines.source.stream import StreamReader  # noqa: PLC0415 - same

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.pipelines.sink.batch import batch_writer  # noqa: PLC0415 - readers need none of it

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from tidelog.pipelines.sink.stream import stream_writer  # noqa: PLC0415 - same

        return stream_writer(self.options, schema, overwrite=overwrite)
