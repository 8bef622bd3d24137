"""Shows a pipeline as it runs: a live table on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from tidelog.cli.output import human_bytes, plain_table
from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from rich.console import RenderableType

    from tidelog.clock import Clock
    from tidelog.pipelines.runner.progress import Figures

_LINE_EVERY_S: Final = 2.0
_COLUMNS: Final = ("query", "state", "batch", "rows", "rows/s", "lag", "batch time", "state size")


class PipelineDisplay(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def stage(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None: ...

    def failed(self, figures: Figures, wait_s: float) -> None: ...

    def look(self, figures: Sequence[Figures]) -> None: ...

    def __call__(self, query: str, batch: int | None, columns: list[str], rows: list[Any], more: bool) -> None: ...


def choose_display(name: str, *, as_json: bool) -> PipelineDisplay:
    if as_json:
        return JsonDisplay(name)
    return LiveDisplay(name) if sys.stdout.isatty() else LineDisplay(name, SystemClock())


class LineDisplay:
    """A line for each query that has moved, every other second."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._next_s: dict[str, float] = {}
        self._shown: dict[str, Figures] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stage(self, text: str) -> None:
        click.echo(f"{self._name}: {text}", err=True)

    def warn(self, text: str) -> None:
        click.echo(f"tidelog: warning: {text}", err=True)

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None:
        """Lines come by time, not by batch."""

    def failed(self, figures: Figures, wait_s: float) -> None:
        click.echo(failure_line(figures, wait_s), err=True)

    def look(self, figures: Sequence[Figures]) -> None:
        now_s = self._clock.monotonic()
        for each in figures:
            before = self._shown.get(each.query)
            moved = before is None or before.batch != each.batch or before.state != each.state
            ended = each.state in {"done", "stopped", "failed"}
            due = ended or now_s >= self._next_s.get(each.query, 0.0)
            if moved and each.batch is not None and due and each.state != "idle":
                click.echo(progress_line(each))
                self._shown[each.query] = each
                self._next_s[each.query] = now_s + _LINE_EVERY_S

    def __call__(self, query: str, batch: int | None, columns: list[str], rows: list[Any], more: bool) -> None:
        for line in row_lines(query, batch, columns, rows, more):
            click.echo(line)


class JsonDisplay:
    """One JSON document for each batch, failure and row of a console sink."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stage(self, text: str) -> None:
        """Programs wait for batches."""

    def warn(self, text: str) -> None:
        click.echo(f"tidelog: warning: {text}", err=True)

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None:
        self._print("batch", {**figures.as_json(), "timestamp": report.get("timestamp")})

    def failed(self, figures: Figures, wait_s: float) -> None:
        self._print("failure", {**figures.as_json(), "wait_s": wait_s})

    def look(self, figures: Sequence[Figures]) -> None:
        """Nothing between batches."""

    def __call__(self, query: str, batch: int | None, columns: list[str], rows: list[Any], more: bool) -> None:
        for row in rows:
            self._print("row", {"query": query, "batch": batch, "row": dict(zip(columns, row, strict=True))})
        if more:
            self._print("more", {"query": query, "batch": batch})

    def _print(self, event: str, content: Mapping[str, Any]) -> None:
        click.echo(json.dumps({"event": event, "pipeline": self._name, **content}, ensure_ascii=False, default=str))


class LiveDisplay:
    """A table that stays where it is, and below it the rows of console sinks go by."""

    def __init__(self, name: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - costs more than the rest of a short command
        from rich.live import Live  # noqa: PLC0415

        self._name = name
        self._console = Console()
        self._live = Live(f"{name}: starting", console=self._console, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def stage(self, text: str) -> None:
        self._live.update(f"{self._name}: {text}")

    def warn(self, text: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Text(f"warning: {text}", style="yellow"))

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None:
        """The table is drawn by time."""

    def failed(self, figures: Figures, wait_s: float) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Text(failure_line(figures, wait_s), style="red"))

    def look(self, figures: Sequence[Figures]) -> None:
        self._live.update(_table(self._name, figures))

    def __call__(self, query: str, batch: int | None, columns: list[str], rows: list[Any], more: bool) -> None:
        from rich.text import Text  # noqa: PLC0415

        for line in row_lines(query, batch, columns, rows, more):
            self._console.print(Text(line), soft_wrap=True)


def progress_line(figures: Figures) -> str:
    batch_time = "-" if figures.batch_ms is None else duration(figures.batch_ms)
    parts = [
        f"  {figures.query}: {figures.state}, batch {figures.batch} in {batch_time}",
        f"{figures.rows:,} rows, {figures.rows_per_s:,.0f}/s",
    ]
    if figures.lag is not None:
        parts.append(f"lag {figures.lag:,}")
    if figures.state_rows:
        parts.append(f"state {figures.state_rows:,} rows, {human_bytes(figures.state_bytes or 0)}")
    if figures.late_rows:
        parts.append(f"{figures.late_rows:,} came too late")
    return "  ".join(parts)


def failure_line(figures: Figures, wait_s: float) -> str:
    return f"  {figures.query} failed: {figures.error}; it is started again in {wait_s:g} s"


def row_lines(query: str, batch: int | None, columns: list[str], rows: list[Any], more: bool) -> list[str]:
    texts = [["-" if value is None else str(value) for value in row] for row in rows]
    right = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    title = f"{query}:" if batch is None else f"{query}, batch {batch}:"
    return [title, *(f"  {line}" for line in plain_table(columns, texts, right)), *(["  ..."] if more else [])]


def duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def cells(figures: Figures) -> list[str]:
    return [
        figures.query,
        figures.state,
        "-" if figures.batch is None else str(figures.batch),
        f"{figures.rows:,}",
        f"{figures.rows_per_s:,.0f}",
        "-" if figures.lag is None else f"{figures.lag:,}",
        "-" if figures.batch_ms is None else duration(figures.batch_ms),
        "-" if figures.state_rows is None else f"{figures.state_rows:,} rows, {human_bytes(figures.state_bytes or 0)}",
    ]


def _table(name: str, figures: Sequence[Figures]) -> RenderableType:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    styles = {"running": "green", "idle": "dim", "failed": "red", "done": "green"}
    table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for at, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if at < 2 else "right")
    for each in figures:
        texts = [Text(cell) for cell in cells(each)]
        texts[1].stylize(styles.get(each.state, ""))
        table.add_row(*texts)
    return table
