"""What Spark reports and raises, as figures, metrics and lines."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import pytest

from tidelog.cli.pipeline_display import cells, failure_line, progress_line, row_lines
from tidelog.pipelines.runner.failures import Backoff, explain, is_final
from tidelog.pipelines.runner.outputs import Output, warnings_in
from tidelog.pipelines.runner.progress import Figures, after_batch, new_reports, positions, source_lag
from tidelog.pipelines.runner.prometheus import MetricsServer, exposition

REPORT: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 500,
    "processedRowsPerSecond": 250.5,
    "durationMs": {"triggerExecution": 1996, "addBatch": 1500},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 5, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [{"endOffset": {"t": {"0": 10, "1": 5}}, "latestOffset": {"t": {"0": 12, "1": 5, "2": 4}}}],
}


def test_a_report_becomes_figures() -> None:
    figures = after_batch(Figures("sales", rows=100, batches=2, late_rows=1), REPORT)
    assert figures == Figures(
        "sales",
        state="running",
        batch=3,
        batches=3,
        rows=600,
        rows_per_s=250.5,
        batch_ms=1996,
        lag=6,
        state_rows=15,
        state_bytes=1500,
        late_rows=3,
        watermark="2026-01-01T00:00:00.000Z",
    )


def test_a_report_without_much() -> None:
    figures = after_batch(Figures("x", lag=5), {"batchId": 0, "sources": [{"endOffset": 3}]})
    assert (figures.rows, figures.rows_per_s, figures.lag, figures.state_rows) == (0, 0.0, 5, None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"t": {"0": 5}}, {("t", "0"): 5}),
        ('{"t": {"0": 5}}', {("t", "0"): 5}),
        ({"t": {"0": 5}, "at": 7, "x": {"not a partition": 1}}, {("t", "0"): 5}),
        ("5", {}),
        ("nonsense", {}),
        (None, {}),
        (5, {}),
    ],
)
def test_positions(given: Any, found: dict[tuple[str, str], int]) -> None:
    assert positions(given) == found


def test_sources_that_do_not_tell_have_no_lag() -> None:
    assert source_lag({"endOffset": 5, "latestOffset": None}) is None
    assert source_lag({"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 5}}}) == 0


def test_each_batch_counts_once() -> None:
    idle = {"batchId": 4, "numInputRows": 0, "durationMs": {"latestOffset": 1}}
    empty = {"batchId": 5, "numInputRows": 0, "durationMs": {"addBatch": 1}}
    reports = [REPORT, REPORT, idle, empty]
    assert [report["batchId"] for report in new_reports(None, reports)] == [3, 5]
    assert [report["batchId"] for report in new_reports(3, reports)] == [5]
    assert new_reports(5, reports) == []


PYTHON_FAILURE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted:
Task 0 in stage 1.0 failed 4 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 3, in main
    process()
tidelog.pipelines.sink.decider.Refused: batch 3 was decided with other offsets: restore the checkpoint
\tat org.apache.spark.api.python.BasePythonRunner
Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ==="""


def raised(error: str) -> str:
    return PYTHON_FAILURE.replace(
        "sink.decider.Refused: batch 3 was decided with other offsets: restore the checkpoint", error
    )


FAILED = "[STREAM_FAILED] Query [id = 1] terminated with exception:"
UNRESOLVED = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amont` cannot be resolved. Did you mean one of \
the following? [`amount`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['amont]"""


IN_JAVA = f"""{FAILED} Traceback (most recent call last):
  File "/x/utils.py", line 3, in call
py4j.protocol.Py4JJavaError: An error occurred while calling o417.save.
{{}}
\tat java.sql"""
NO_DRIVER = "No suitable driver: name the jar that has it with --conf spark.jars=..., or option driver"


@pytest.mark.parametrize(
    ("text", "told", "final"),
    [
        (PYTHON_FAILURE, "Refused: batch 3 was decided with other offsets: restore the checkpoint", True),
        (PYTHON_FAILURE.replace("tidelog.pipelines.sink.decider.Refused", "KeyError"), "KeyError: batch 3", False),
        (UNRESOLVED, "A column with name `amont` cannot be resolved. Did you mean one of the following?", True),
        (f"{FAILED} requirement failed: x does not support that. SQLSTATE: XX", "requirement failed: x does not", True),
        (f"{FAILED} [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema", "Provided key schema", True),
        (
            f"{FAILED} assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] sources",
            "assertion failed: There are [1] sources in the checkpoint",
            True,
        ),
        (raised("source.errors.Unreadable: t-0 cannot be read"), "Unreadable: t-0 cannot be read", True),
        (raised("source.errors.SourceError: t-0 could not be read"), "SourceError: t-0 could not be read", False),
        (raised("source.errors.TopicMissing: topic t"), "TopicMissing: topic t", False),
        (raised("sink.decisions.UnreadableDecision: it is no"), "UnreadableDecision: it is no", True),
        (raised("client.errors.RecordTooLarge: 2 MB"), "RecordTooLarge: 2 MB", True),
        (raised("errors.BrokerError: topic a b: INVALID_TOPIC_EXCEPTION"), "BrokerError: topic a b: INVALID", True),
        (IN_JAVA.format(": java.sql.SQLException: No suitable driver"), f"SQLException: {NO_DRIVER}", True),
        (IN_JAVA.format(": java.lang.OutOfMemoryError"), "OutOfMemoryError: no reason given", False),
        (IN_JAVA.format("\tat x"), "Py4JJavaError: An error occurred while calling o417.save.", False),
        (
            IN_JAVA.format(": org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] malformed record in t-0"),
            "SparkRuntimeException: malformed record in t-0",
            True,
        ),
        (
            f"{FAILED} [STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] It is missing. SQLSTATE: 42K03",
            "It is missing; a sink that was changed so much needs another name, or its pipeline a reset",
            True,
        ),
        (f"{FAILED} Python worker failed to connect back.", "Python worker failed to connect back.", False),
        ("", "no reason given", False),
    ],
)
def test_what_is_said_of_a_failure(text: str, told: str, final: bool) -> None:
    assert explain(text).startswith(told)
    assert "\n" not in explain(text)
    assert is_final(text) == final


def test_what_may_still_come_is_waited_for_unless_all_is_to_be_read_once() -> None:
    assert is_final(raised("source.errors.TopicMissing: topic t does not exist"), once=True)
    assert is_final(raised("source.errors.DataLost: t-0"), once=True)
    assert not is_final(raised("source.errors.SourceError: t-0 could not be read within 5 ms"), once=True)


def test_waits_double_up_to_a_limit_and_end() -> None:
    backoff = Backoff(first_s=1, longest_s=10, tries_max=6)
    assert [backoff.wait_s(failures) for failures in range(1, 8)] == [1, 2, 4, 8, 10, 10, None]


def test_metrics_are_served() -> None:
    figures = [after_batch(Figures("sales"), REPORT), Figures("other")]
    server = MetricsServer("127.0.0.1", 0, lambda: exposition("shop", figures))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other")
        refused.value.close()
    finally:
        server.close()
    assert 'tidelog_pipeline_rows_total{pipeline="shop",query="sales"} 500' in lines
    assert 'tidelog_pipeline_lag_records{pipeline="shop",query="sales"} 6' in lines
    assert 'tidelog_pipeline_batch_seconds{pipeline="shop",query="sales"} 1.996' in lines
    assert 'tidelog_pipeline_up{pipeline="shop",query="other"} 0' in lines
    assert not any("lag_records" in line and "other" in line for line in lines), "what is not known is not told"
    assert lines.count("# TYPE tidelog_pipeline_rows_total counter") == 1


def test_lines_for_people() -> None:
    figures = after_batch(Figures("sales"), REPORT)
    assert progress_line(figures) == (
        "  sales: running, batch 3 in 2.0 s  500 rows, 250/s  lag 6  state 15 rows, 1.5 KB  2 came too late"
    )
    assert cells(Figures("x")) == ["x", "starting", "-", "0", "0", "-", "-", "-"]
    assert failure_line(Figures("x", error="E: y"), 2) == "  x failed: E: y; it is started again in 2 s"
    assert row_lines("q", 1, ["name", "total"], [("a", 5), (None, 10)], True) == [
        "q, batch 1:",
        "  NAME  TOTAL",
        "  a         5",
        "  -        10",
        "  ...",
    ]


def test_warnings_of_workers_reach_the_user(tmp_path: Any) -> None:
    line = "/x/decider.py:106: OutputRepeats: query 5 begins anew, and what was written is WRITTEN AGAIN"
    assert warnings_in([line, "  await self._warn()", "Traceback", "/x.py:3: DeprecationWarning: old"]) == [
        "query 5 begins anew, and what was written is WRITTEN AGAIN"
    ]
    assert warnings_in(["DATA LOSS: orders-0: offsets 1 to 5", "no DATA LOSS: here"]) == [
        "DATA LOSS: orders-0: offsets 1 to 5"
    ]
    output = Output(tmp_path / "spark.out")
    assert output.warnings() == []
    (tmp_path / "spark.out").write_text(line[:30], encoding="utf-8")
    assert output.warnings() == []
    (tmp_path / "spark.out").write_text(line + "\n", encoding="utf-8")
    assert len(output.warnings()) == 1
    assert output.warnings() == []
