"""docs/compat.md lists exactly the APIs and versions that the handlers serve."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.handlers import HANDLERS

COMPAT = Path(__file__).parents[1] / "docs" / "compat.md"


def documented() -> dict[int, tuple[str, tuple[int, int]]]:
    rows = {}
    served = COMPAT.read_text().split("## APIs served")[1].split("##")[0]
    for key, name, first, last in re.findall(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \|", served, re.MULTILINE):
        rows[int(key)] = (name, (int(first), int(last or first)))
    return rows


def test_the_page_and_the_handlers_agree() -> None:
    assert documented() == {
        handler.api: (handler.request.__name__.removesuffix("Request"), handler.versions) for handler in HANDLERS
    }
