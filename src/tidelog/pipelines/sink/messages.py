"""What a task tells the driver, and who the task is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tidelog.pipelines.sink.decisions import NO_RUN

if TYPE_CHECKING:
    from tidelog.client.transactions.handles import PreparedTransaction

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Spark has all jobs of a run in one group, and names it after the run."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    query: str
    run: str
    batch: int

    @classmethod
    def of_this_task(cls) -> TaskIdentity:
        context = TaskContext.get()
        assert context is not None, "only tasks write"
        query, run, batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID))
        if query is None or run is None or batch is None:
            raise RuntimeError("Spark did not say which batch of which streaming query this task belongs to")
        return cls(query, run, int(batch))


@dataclass(slots=True)
class Written(WriterCommitMessage):
    """One task's part of a batch: everything is stored, only the outcome is missing."""

    query: str
    run: str
    batch: int
    rows: int
    prepared: PreparedTransaction | None
    """None when there is nothing that needs an outcome."""
    seen_run: str = NO_RUN
    """Of the last decision, when this run was first met."""
