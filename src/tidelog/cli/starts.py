"""Reads where to begin, as a user writes it: `earliest`, `latest`, an offset, or a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from tidelog.clock import SystemClock

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)\Z")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Start(NamedTuple):
    """Exactly one of these, apart from the word."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    """So many offsets before the end."""
    timestamp_ms: int | None = None


def parse_start(text: str) -> Start:
    """ValueError says what can be written instead."""
    lowered = text.strip().lower()
    if lowered in {"earliest", "latest"}:
        return Start(word=lowered)
    if re.fullmatch(r"\d+", lowered):
        return Start(offset=int(lowered))
    if re.fullmatch(r"-\d+", lowered):
        return Start(last=-int(lowered))
    try:
        return Start(timestamp_ms=parse_time(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is not earliest, latest, an offset (42), the last few (-10), or a time "
            "(@1700000000000, 2026-03-01T12:00:00Z, or 2h for two hours ago)"
        ) from None


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970, from `@ms`, an ISO date (local time unless it says), or a time ago (`90s`, `2h`)."""
    text = text.strip()
    if re.fullmatch(r"@\d+", text):
        return int(text[1:])
    ago = _AGO.match(text)
    if ago:
        now = SystemClock().now_ms() if now_ms is None else now_ms
        return max(0, now - int(ago[1]) * _UNIT_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: write @1700000000000, 2026-03-01T12:00:00Z, or 2h") from None
    return max(0, int(moment.timestamp() * 1000))


def format_time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
