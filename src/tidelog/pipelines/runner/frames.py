"""The frame of a query: its sources, and the views made of them, each called with what its parameters name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.definition.views import SESSION
from tidelog.pipelines.runner.reading import with_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipelines.definition.pipeline import Pipeline
    from tidelog.pipelines.runner.reading import SourceReader


def build_frame(spark: SparkSession, pipeline: Pipeline, view: str, reader: SourceReader, group: str) -> DataFrame:
    """Every query reads by itself, so that each has its own place in its sources."""
    frames: dict[str, DataFrame] = {}
    for name in pipeline.needs(view):
        if name in pipeline.sources:
            frames[name] = _checked(name, reader.frame(name, pipeline.sources[name], group))
        else:
            frames[name] = _view_frame(spark, pipeline, name, frames)
        if name.isidentifier():
            frames[name].createOrReplaceTempView(name)
    return frames[view]


def _view_frame(spark: SparkSession, pipeline: Pipeline, name: str, frames: dict[str, DataFrame]) -> DataFrame:
    view = pipeline.views[name]
    if view.sql is not None:
        rows = spark.sql(view.sql)
    else:
        assert view.function is not None, "a view is a function or SQL"
        rows = view.function(**{each: spark if each == SESSION else frames[each] for each in view.inputs})
    return with_watermark(_checked(name, rows), view.watermark)


def _checked(name: str, rows: object) -> DataFrame:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - for the check alone

    if not isinstance(rows, DataFrame):
        raise PipelineError(f"{name} returns {'nothing' if rows is None else repr(rows)}, not a DataFrame")
    return rows
