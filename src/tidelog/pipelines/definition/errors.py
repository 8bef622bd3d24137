"""What is wrong with a pipeline, told so that its author knows what to change."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PipelineError(Exception):
    """One line for the user."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to put after 'there is no ...': the name that was meant, or all there are."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(names)}" if names else "there are none"
