"""Shows the rows to people: a rich table on a terminal, plain columns elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench.results import ADEQUATE, SHORT, measured_text, ratio_text, reference_text, target_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.results import Row

HEADINGS = ("what", "measured", "target", "reference", "ratio", "", "remarks")
_STYLES = {ADEQUATE: "green", SHORT: "bold red"}


def show(rows: Sequence[Row], title: str) -> None:
    console = Console()
    if console.is_terminal:
        console.print(_rich(rows, title))
    else:
        print(title)
        print("\n".join(plain_lines(rows)))


def plain_lines(rows: Sequence[Row]) -> list[str]:
    table = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _rich(rows: Sequence[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in {"measured", "ratio"} else "left")
    for row in rows:
        cells = _cells(row)
        style = _STYLES.get(row.verdict, "")
        table.add_row(*cells[:5], f"[{style}]{cells[5]}[/]" if style else cells[5], cells[6])
    return table


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        measured_text(row.measured, row.unit),
        target_text(row),
        reference_text(row),
        ratio_text(row),
        row.verdict,
        row.note,
    )
