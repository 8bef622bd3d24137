"""Tables that are written by one job: all rows or none, and rows that cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from sink_runs import ROWS, arrow, create_topic, open_transactions, visible

from tidelog.pipelines.sink.batch import BatchWriter, batch_writer
from tidelog.pipelines.sink.messages import Written
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.sink.processes import WritingProcess
from tidelog.pipelines.sink.writing import write_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def output(bootstrap: str, topic: str) -> str:
    create_topic(bootstrap, topic)
    return topic


def writer(bootstrap: str, topic: str, **options: str) -> BatchWriter:
    made = batch_writer({"kafka.bootstrap.servers": bootstrap, "topic": topic, **options}, VALUE, overwrite=False)
    assert isinstance(made, BatchWriter)
    return made


def test_a_job_is_seen_when_it_is_committed(bootstrap: str, output: str) -> None:
    job = writer(bootstrap, output)
    messages = [job.write(arrow(range(ROWS)[number::3])) for number in range(3)]
    job.write(arrow(range(5)))  # another attempt, of which nobody heard
    job.commit(messages)
    assert visible(bootstrap, output) == list(range(ROWS))


def test_nothing_is_seen_of_a_job_that_is_aborted_nor_is_anybody_held_back(bootstrap: str, output: str) -> None:
    job = writer(bootstrap, output)
    told = job.write(arrow(range(5)))
    job.write(arrow(range(5, 10)))  # Spark stopped it before it could say so
    job.abort([told, None])
    assert visible(bootstrap, output) == []


def test_jobs_beside_each_other_do_not_meet(bootstrap: str, output: str) -> None:
    one, other = writer(bootstrap, output), writer(bootstrap, output)
    of_one, of_other = one.write(arrow(range(ROWS))), other.write(arrow(range(ROWS, 2 * ROWS)))
    other.abort([of_other])
    one.commit([of_one])
    assert visible(bootstrap, output) == list(range(ROWS))


def test_a_job_without_rows_needs_no_transaction(bootstrap: str, output: str) -> None:
    job = writer(bootstrap, output)
    message = job.write(iter([pa.record_batch({"value": pa.array([], pa.binary())})]))
    assert isinstance(message, Written)
    assert (message.rows, message.prepared) == (0, None)
    job.commit([message])
    assert visible(bootstrap, output) == []


def test_at_least_once_is_seen_at_once(bootstrap: str, output: str) -> None:
    job = writer(bootstrap, output, delivery="at-least-once")
    message = job.write(arrow(range(ROWS)))
    assert isinstance(message, Written)
    assert message.rows == ROWS
    assert visible(bootstrap, output) == list(range(ROWS))
    job.abort([message])
    job.commit([message])
    assert visible(bootstrap, output) == list(range(ROWS))


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"partition": pa.array([99], pa.int32())}, "no partition 99"),
        ({"value": pa.array([b"x" * (2 << 20)])}, "max_request_size"),
    ],
)
def test_a_row_that_cannot_be_written_fails_its_task(
    bootstrap: str, output: str, delivery: str, columns: dict[str, pa.Array], says: str
) -> None:
    row = {"value": pa.array([b"1"]), **columns}

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(row)

    job = writer(bootstrap, output, delivery=delivery)
    with pytest.raises(Exception, match=says):
        job.write(rows())
    assert visible(bootstrap, output) == []
    assert open_transactions(bootstrap, "batches") == []


def test_a_row_needs_a_topic(bootstrap: str) -> None:
    options = SinkOptions.of({"kafka.bootstrap.servers": bootstrap, "delivery": "at-least-once"})
    rows = pa.record_batch({"value": pa.array([b"1"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(ValueError, match="every row needs a topic"):
        write_at_once(options, iter([rows]), WritingProcess())
