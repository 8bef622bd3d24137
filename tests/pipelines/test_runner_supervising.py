"""Queries that fail are started again, and end between batches. Stand-ins play Spark's queries."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.pipelines import PipelineError
from tidelog.pipelines.runner.failures import Backoff
from tidelog.pipelines.runner.supervising import Supervisor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipelines.runner.progress import Figures


class SteppingClock:
    """Each look takes a second."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def monotonic(self) -> float:
        self._now_s += 1.0
        return self._now_s


class NoWaiting(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return self.is_set()


@dataclass
class Spoken:
    """A query as Spark shows it: its script says what each look finds."""

    script: list[dict[str, Any]]
    stopped: bool = False
    at: int = -1
    done: list[Any] = field(default_factory=list)

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        if self.at < len(self.script) - 1:
            self.at += 1
            self.done += self.script[self.at].get("reports", [])
        return not self.stopped and bool(self.script[self.at].get("active", True))

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - same
        return self.done

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - same
        return self.done[-1] if self.done else None

    @property
    def status(self) -> dict[str, Any]:
        busy = self.script[self.at].get("busy", False)
        return {"message": "Waiting", "isTriggerActive": busy, "isDataAvailable": busy}

    def exception(self) -> Any:
        return self.script[self.at].get("exception")

    def stop(self) -> None:
        self.stopped = True


class Notes:
    def __init__(self) -> None:
        self.batches: list[int | None] = []
        self.waits: list[float] = []
        self.last: list[Figures] = []
        self.rates: list[float] = []

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None:
        del report
        self.batches.append(figures.batch)

    def failed(self, figures: Figures, wait_s: float) -> None:
        assert figures.error
        self.waits.append(wait_s)

    def look(self, figures: Sequence[Figures]) -> None:
        self.last = list(figures)
        self.rates.append(figures[0].rows_per_s)


def report(batch: int) -> dict[str, Any]:
    return {"batchId": batch, "numInputRows": 10, "durationMs": {"addBatch": 1, "triggerExecution": 2}}


def ended(exception: str | None = None) -> dict[str, Any]:
    return {"active": False, "exception": exception}


def supervised(*lives: list[dict[str, Any]] | Exception, tries_max: int = 3) -> tuple[Supervisor, Notes, list[Spoken]]:
    notes, begun = Notes(), list[Spoken]()
    supervisor = Supervisor(notes, SteppingClock(), NoWaiting(), NoWaiting(), Backoff(tries_max=tries_max))
    remaining = list(lives)

    def begin() -> Any:
        life = remaining.pop(0)
        if isinstance(life, Exception):
            raise life
        begun.append(Spoken(life))
        return begun[-1]

    supervisor.add("sales", begin)
    return supervisor, notes, begun


def test_it_ends_when_all_is_read() -> None:
    supervisor, notes, _ = supervised([{}, {"reports": [report(0)]}, {"reports": [report(1)]}, ended()])
    supervisor.run()
    assert notes.batches == [0, 1]
    assert (notes.last[0].state, notes.last[0].rows) == ("done", 20)


def test_a_rate_stands_between_two_batches_and_not_for_ever() -> None:
    fast = {**report(0), "processedRowsPerSecond": 50.0}
    supervisor, notes, _ = supervised([{}, {"reports": [fast]}, *([{}] * 30), ended()])
    supervisor.run()
    at = notes.rates.index(50.0)
    assert notes.rates[at : at + 3] == [50.0] * 3
    assert notes.rates[-2] == 0.0
    assert notes.last[0].state == "done"


def test_a_failure_is_waited_out_longer_each_time_and_forgotten_after_a_batch() -> None:
    supervisor, notes, _ = supervised(
        [ended("lost the broker")],
        [ended("lost the broker")],
        [{}, {"reports": [report(0)]}, {}, ended("lost the broker")],
        RuntimeError("no broker answers"),
        [ended()],
    )
    supervisor.run()
    assert notes.waits == [1, 2, 1, 2]
    assert (notes.last[0].state, notes.last[0].restarts) == ("done", 4)


def test_it_gives_up_in_the_end() -> None:
    supervisor, notes, _ = supervised(*[[ended("lost the broker")]] * 4)
    with pytest.raises(PipelineError, match=r"sales: lost the broker \(tried 4 times\)"):
        supervisor.run()
    assert notes.waits == [1, 2, 4]
    assert notes.last[0].state == "failed"


def test_what_cannot_get_better_is_not_tried_again() -> None:
    supervisor, notes, _ = supervised([ended("[X] requirement failed: it does not support Update mode.")])
    with pytest.raises(PipelineError, match="does not support Update mode"):
        supervisor.run()
    assert notes.waits == []


MISSING = "Traceback (most recent call last):\ntidelog.pipelines.source.errors.TopicMissing: topic t does not exist"


def test_a_topic_that_is_missing_is_waited_for() -> None:
    supervisor, notes, _ = supervised([ended(MISSING)], [ended()])
    supervisor.run()
    assert notes.waits == [1]


def test_a_topic_that_is_missing_ends_what_runs_once() -> None:
    supervisor, notes, _ = supervised([ended(MISSING)])
    supervisor.once = True
    with pytest.raises(PipelineError, match="sales: TopicMissing: topic t does not exist"):
        supervisor.run()
    assert notes.waits == []


def test_what_cannot_start_is_told_at_once() -> None:
    supervisor, _, _ = supervised(ValueError("[UNRESOLVED_COLUMN] no such column. SQLSTATE: 1"))
    with pytest.raises(PipelineError, match=r"^sales: no such column\.$"):
        supervisor.run()


def test_one_that_fails_ends_the_others() -> None:
    supervisor, notes, begun = supervised([{}])
    supervisor.add("broken", lambda: (_ for _ in ()).throw(PipelineError("no column 'x'")))
    with pytest.raises(PipelineError, match="broken: no column 'x'"):
        supervisor.run()
    assert begun[0].stopped
    assert notes.last[0].state == "stopped"


def test_a_stop_waits_for_the_batch_in_progress() -> None:
    busy = {"busy": True}
    supervisor, notes, begun = supervised([{}, busy, busy, busy, busy, {"busy": True, "reports": [report(7)]}, busy])
    asked = iter([False, False])
    supervisor.stop.is_set = lambda: next(asked, True)  # type: ignore[method-assign]
    supervisor.run()
    assert begun[0].stopped
    assert notes.batches == [7]
    assert notes.last[0].state == "stopped"


def test_a_second_signal_does_not_wait() -> None:
    supervisor, notes, begun = supervised([{}, {"busy": True}])
    asked = iter([False, False])
    supervisor.stop.is_set = lambda: next(asked, True)  # type: ignore[method-assign]
    supervisor.hurry.set()
    supervisor.run()
    assert begun[0].stopped
    assert notes.batches == []


def test_what_does_not_stream_is_done_at_once() -> None:
    supervisor, notes, _ = supervised([ended()])
    supervisor.add("static", lambda: None)
    supervisor.run()
    assert [each.state for each in notes.last] == ["done", "done"]
