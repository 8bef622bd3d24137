"""What every bench does with its rows: a table for people, and a file for programs if one was asked for."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from bench.results import SHORT
from bench.table import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.results import Row


def parser(
    name: str, description: str, *, short: str = "a quick look: small amounts, one trial each"
) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    made.add_argument("--short", action="store_true", help=short)
    made.add_argument("--json", metavar="FILE", type=Path, help="write the figures to FILE too")
    return made


def report(rows: Sequence[Row], title: str, file: Path | None) -> None:
    on = machine()
    show(rows, f"{title}; {on}")
    if file is not None:
        facts = {"machine": on, "rows": [row.as_json() for row in rows]}
        file.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def exit_code(rows: Sequence[Row]) -> int:
    """1 if a target was missed."""
    return 1 if any(row.verdict == SHORT for row in rows) else 0


def machine() -> str:
    one, five, _ = os.getloadavg()
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"load {one:.1f} now and {five:.1f} over 5 minutes"
    )
