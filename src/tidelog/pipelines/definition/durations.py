"""Lengths of time as people write them: `10 minutes`, `500 ms`, `1 hour 30 minutes`."""

from __future__ import annotations

import re
from typing import Final

from tidelog.pipelines.definition.errors import PipelineError

_UNITS_S: Final = {
    "ms": 0.001,
    "millisecond": 0.001,
    "milliseconds": 0.001,
    "s": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def seconds(text: str, what: str) -> float:
    """PipelineError names `what` when this is no length of time."""
    at, total = 0, 0.0
    while match := _PART.match(text, at):
        unit = _UNITS_S.get(match[2].lower())
        if unit is None:
            break
        total += float(match[1]) * unit
        at = match.end()
    if at == 0 or at != len(text):
        raise PipelineError(f"{what} is {text!r}, which is no length of time such as '10 minutes' or '500 ms'")
    return total


def spark_interval(text: str, what: str) -> str:
    """As Spark reads it."""
    return f"{round(seconds(text, what) * 1000)} milliseconds"
