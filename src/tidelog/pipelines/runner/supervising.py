"""Keeps the queries of a pipeline running: starts them again when they fail, and ends them between two batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.runner.failures import Backoff, explain, is_final
from tidelog.pipelines.runner.progress import Figures, after_batch, new_reports

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.clock import Clock

_LOOK_EVERY_S: Final = 0.2
_QUIET_AFTER_S: Final = 5.0
"""The rate of the last batch stands for so long: between two batches of a steady stream it is not 0."""
_STOP_WITHIN_S: Final = 120.0
_SETTLED_WITHIN_S: Final = 15.0
_SETTLING: Final = {"Initializing StreamExecution", "Initializing sources"}


class Watcher(Protocol):
    """Whoever is told what happens."""

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None:
        """A query has done a batch."""

    def failed(self, figures: Figures, wait_s: float) -> None:
        """A query has failed, and is started again after a while."""

    def look(self, figures: Sequence[Figures]) -> None:
        """Now and then, whatever happened."""


@dataclass
class Supervised:
    name: str
    begin: Callable[[], StreamingQuery | None]
    figures: Figures
    handle: StreamingQuery | None = None
    seen: int | None = None
    reported_s: float = 0.0
    """When the last batch was done."""
    failures: int = 0
    again_at_s: float | None = None
    done: bool = False


@dataclass
class Supervisor:
    """Ends when `stop` is set, when all queries have ended by themselves, or with a PipelineError."""

    watcher: Watcher
    clock: Clock
    stop: threading.Event
    hurry: threading.Event
    """Set: end at once, without waiting for the end of a batch."""
    backoff: Backoff = field(default_factory=Backoff)
    once: bool = False
    """Nobody waits for what may come."""
    queries: list[Supervised] = field(default_factory=list)

    def add(self, name: str, begin: Callable[[], StreamingQuery | None]) -> None:
        self.queries.append(Supervised(name, begin, Figures(name)))

    def run(self) -> None:
        try:
            for query in self.queries:
                if self.stop.is_set():
                    return
                self._begin_first(query)
                self._let_settle(query)
            while not self.stop.is_set() and not all(query.done for query in self.queries):
                for query in self.queries:
                    self._look(query)
                self.watcher.look(self.figures())
                self.stop.wait(_LOOK_EVERY_S)
        finally:
            self._end()
            self.watcher.look(self.figures())

    def figures(self) -> list[Figures]:
        return [query.figures for query in self.queries]

    def _begin_first(self, query: Supervised) -> None:
        """What cannot even start is wrong, and told at once."""
        try:
            query.handle = query.begin()
        except PipelineError as error:
            raise PipelineError(f"{query.name}: {error}") from error
        except Exception as error:
            raise PipelineError(f"{query.name}: {explain(str(error))}") from error
        if query.handle is None:
            query.done = True
            query.figures = replace(query.figures, state="done")

    def _let_settle(self, query: Supervised) -> None:
        """One after the other: Spark gives the processes of a source ten seconds to start, which is little when those
        of all queries start at once."""
        deadline = self.clock.monotonic() + _SETTLED_WITHIN_S
        while query.handle is not None and query.handle.isActive and self.clock.monotonic() < deadline:
            if query.handle.status["message"] not in _SETTLING or self.stop.wait(_LOOK_EVERY_S / 2):
                return

    def _look(self, query: Supervised) -> None:
        if query.done:
            return
        if query.handle is None:
            self._begin_again(query)
            return
        active = query.handle.isActive
        self._take_reports(query)
        if active:
            return
        failure = query.handle.exception()
        if failure is None:
            query.done = True
            query.figures = replace(query.figures, state="done", rows_per_s=0.0)
        else:
            self._failed(query, str(failure))

    def _take_reports(self, query: Supervised) -> None:
        assert query.handle is not None
        reports: list[Mapping[str, Any]] = [_as_dict(report) for report in query.handle.recentProgress[-20:]]
        fresh = new_reports(query.seen, reports)
        for report in fresh:
            query.seen = int(report["batchId"])
            query.failures = 0
            query.reported_s = self.clock.monotonic()
            query.figures = after_batch(query.figures, report)
            self.watcher.batch(query.figures, report)
        if not fresh and query.handle.isActive:
            waiting = not query.handle.status["isTriggerActive"] or not query.handle.status["isDataAvailable"]
            state = "idle" if waiting else "running"
            quiet = waiting and self.clock.monotonic() - query.reported_s > _QUIET_AFTER_S
            rate = 0.0 if quiet else query.figures.rows_per_s
            query.figures = replace(query.figures, state=state, rows_per_s=rate)

    def _begin_again(self, query: Supervised) -> None:
        assert query.again_at_s is not None, "it is started again only after a failure"
        if self.clock.monotonic() < query.again_at_s:
            return
        query.figures = replace(query.figures, state="starting", restarts=query.figures.restarts + 1)
        try:
            query.handle = query.begin()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and told
            self._failed(query, str(error))

    def _failed(self, query: Supervised, text: str) -> None:
        told = explain(text)
        query.handle = None
        query.failures += 1
        query.figures = replace(query.figures, state="failed", error=told, rows_per_s=0.0)
        wait_s = None if is_final(text, once=self.once) else self.backoff.wait_s(query.failures)
        if wait_s is None:
            tries = f" (tried {query.failures} times)" if query.failures > 1 else ""
            raise PipelineError(f"{query.name}: {told}{tries}")
        query.again_at_s = self.clock.monotonic() + wait_s
        self.watcher.failed(query.figures, wait_s)

    def _end(self) -> None:
        """Each query when its batch is done: one that is cut short is done again at the next start, which is safe but
        takes its time."""
        deadline = self.clock.monotonic() + _STOP_WITHIN_S
        open_ = [query for query in self.queries if query.handle is not None and query.handle.isActive]
        begun = {query.name: _batch(query.handle) for query in open_ if query.handle is not None}
        while open_:
            for query in list(open_):
                assert query.handle is not None
                late = self.hurry.is_set() or self.clock.monotonic() > deadline
                if late or not query.handle.isActive or _between(query.handle, begun[query.name]):
                    query.handle.stop()
                    self._take_reports(query)
                    query.figures = replace(query.figures, state="stopped", rows_per_s=0.0)
                    open_.remove(query)
            if open_:
                self.hurry.wait(_LOOK_EVERY_S / 10)


def _between(handle: StreamingQuery, begun: int | None) -> bool:
    """Nothing runs, or what ran when we began to wait is done."""
    status = handle.status
    return not status["isTriggerActive"] or not status["isDataAvailable"] or _batch(handle) != begun


def _batch(handle: StreamingQuery) -> int | None:
    report = handle.lastProgress
    return None if report is None else int(_as_dict(report)["batchId"])


def _as_dict(report: Any) -> Mapping[str, Any]:
    """Spark gives dicts, or objects that hold JSON."""
    if isinstance(report, dict):
        return report
    import json  # noqa: PLC0415 - rarely needed

    found: dict[str, Any] = json.loads(report.json)
    return found
