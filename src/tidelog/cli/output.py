"""Prints results: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

Cell = str | int | None


def show_json(value: Any) -> None:
    """One JSON document; indented on a terminal."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Numbers to the right. In a pipe the columns are plain, and never cut to fit a screen that is not there."""
    texts = [[_text(cell) for cell in row] for row in rows]
    right = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
    if sys.stdout.isatty():
        _show_rich(columns, texts, right)
    else:
        for line in plain_table(columns, texts, right):
            click.echo(line)


def plain_table(columns: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    lines = [[column.upper() for column in columns], *texts]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def _show_rich(columns: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    from rich import box  # noqa: PLC0415 - costs more than the rest of a short command
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column, to_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if to_right else "left", overflow="fold")
    for row in texts:
        table.add_row(*(Text(text) for text in row))
    Console().print(table)


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or cell.replace(",", "").replace(".", "", 1).isdigit()


def _text(cell: Cell) -> str:
    return "-" if cell is None else str(cell)


def program_name() -> str:
    """As the user has called it."""
    return "tidelog" if not sys.argv[0].endswith("__main__.py") else "python -m tidelog"


def human_bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
