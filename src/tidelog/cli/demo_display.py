"""Shows the demo as it runs: a live panel on a terminal, a line each second anywhere else."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Protocol

import click

from tidelog.cli.output import human_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidelog.cli.demo_report import Report

_LINE_EVERY_S = 1.0
_FRAME_EVERY_S = 0.1


class Display(Protocol):
    async def follow(self, report: Report, total: int) -> None:
        """Shows how far things are, until cancelled."""


def choose_display() -> Display:
    return LiveDisplay() if sys.stdout.isatty() else LineDisplay()


class LineDisplay:
    async def follow(self, report: Report, total: int) -> None:
        pace = Pace()
        while True:
            await asyncio.sleep(_LINE_EVERY_S)
            click.echo(progress_line(report, total, pace.rate(report.received)))


class LiveDisplay:
    async def follow(self, report: Report, total: int) -> None:
        from rich.live import Live  # noqa: PLC0415 - costs more than the rest of a short command

        pace = Pace()
        with Live(_panel(report, total, 0), refresh_per_second=1 / _FRAME_EVERY_S, transient=True) as live:
            while True:
                await asyncio.sleep(_FRAME_EVERY_S)
                live.update(_panel(report, total, pace.rate(report.received)))


class Pace:
    """Records per second, smoothed so that it can be read."""

    _WEIGHT = 0.3

    def __init__(self) -> None:
        self._last_s = asyncio.get_running_loop().time()
        self._last_count = 0
        self._rate = 0.0

    def rate(self, count: int) -> float:
        now_s = asyncio.get_running_loop().time()
        if now_s > self._last_s:
            latest = (count - self._last_count) / (now_s - self._last_s)
            self._rate = latest if self._rate == 0 else self._WEIGHT * latest + (1 - self._WEIGHT) * self._rate
            self._last_s, self._last_count = now_s, count
        return self._rate


def progress_line(report: Report, total: int, rate: float) -> str:
    return (
        f"  {report.received:>9,} of {total:,} records back  {rate:>9,.0f}/s  "
        f"{report.sent - report.received:,} on their way  {human_bytes(report.sent_bytes)}"
    )


def _panel(report: Report, total: int, rate: float) -> RenderableType:
    from rich.columns import Columns  # noqa: PLC0415
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    bars = Table.grid(padding=(0, 2))
    bars.add_row("sent", ProgressBar(total=total, completed=report.sent, width=40), f"{report.sent:,}")
    bars.add_row("stored", ProgressBar(total=total, completed=report.delivered, width=40), f"{report.delivered:,}")
    bars.add_row("read back", ProgressBar(total=total, completed=report.received, width=40), f"{report.received:,}")
    bars.add_row("", f"{rate:,.0f} records/s, {human_bytes(report.sent_bytes)}", "")
    revenue = Table.grid(padding=(0, 2))
    for category, orders, euros in report.revenue_rows():
        revenue.add_row(category, orders, f"[green]{euros}[/green] EUR")
    return Columns([bars, revenue], padding=(0, 4))
