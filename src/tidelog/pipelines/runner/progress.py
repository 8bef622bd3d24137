"""How far a query is, from what Spark reports after each batch. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one query. What is not known is None."""

    query: str
    state: str = "starting"
    batch: int | None = None
    batches: int = 0
    rows: int = 0
    """All rows read since the start."""
    rows_per_s: float = 0.0
    batch_ms: int | None = None
    lag: int | None = None
    """Records that wait in the sources."""
    state_rows: int | None = None
    state_bytes: int | None = None
    late_rows: int = 0
    """Rows that came after the watermark, and were left out."""
    watermark: str | None = None
    restarts: int = 0
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def after_batch(figures: Figures, report: Mapping[str, Any]) -> Figures:
    """`report` is Spark's, of a batch that is new or of a trigger that found nothing."""
    rows = int(report.get("numInputRows") or 0)
    operators = report.get("stateOperators") or ()
    lags = [lag for source in report.get("sources") or () if (lag := source_lag(source)) is not None]
    duration = (report.get("durationMs") or {}).get("triggerExecution")
    return replace(
        figures,
        state="running",
        error=None,
        batch=int(report["batchId"]),
        batches=figures.batches + 1,
        rows=figures.rows + rows,
        rows_per_s=float(report.get("processedRowsPerSecond") or 0.0) if rows else 0.0,
        batch_ms=figures.batch_ms if duration is None else int(duration),
        lag=sum(lags) if lags else figures.lag,
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in operators) if operators else None,
        state_bytes=sum(int(each.get("memoryUsedBytes") or 0) for each in operators) if operators else None,
        late_rows=figures.late_rows + sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in operators),
        watermark=(report.get("eventTime") or {}).get("watermark", figures.watermark),
    )


def source_lag(source: Mapping[str, Any]) -> int | None:
    """Records between where a source is and where its topics end; None where it does not tell."""
    end, latest = positions(source.get("endOffset")), positions(source.get("latestOffset"))
    if not end or not latest:
        return None
    return sum(max(offset - end.get(place, 0), 0) for place, offset in latest.items())


def positions(given: Any) -> dict[tuple[str, str], int]:
    """{topic: {partition: offset}}, also as text, and among other things. Empty: it is something else."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    if not isinstance(given, dict):
        return {}
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in given.items():
        if isinstance(partitions, dict):
            for partition, offset in partitions.items():
                if str(partition).isdigit() and isinstance(offset, int):
                    found[topic, str(partition)] = offset
    return found


def new_reports(seen: int | None, reports: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of batches after `seen`, each once: Spark reports a batch again while nothing happens."""
    fresh: dict[int, Mapping[str, Any]] = {}
    for report in reports:
        batch = int(report["batchId"])
        if (seen is None or batch > seen) and (int(report.get("numInputRows") or 0) or _ran(report)):
            fresh[batch] = report
    return [fresh[batch] for batch in sorted(fresh)]


def _ran(report: Mapping[str, Any]) -> bool:
    """Batches without rows happen: a watermark moved on, and closes windows."""
    return "addBatch" in (report.get("durationMs") or {})
