"""Holding replication back so that it leaves room for clients: which replicas, and how fast. Pure.

A topic lists throttled replicas as `partition:broker`, or `*` for all; the brokers' rates say how many bytes a second
they may take together. Replicas in sync are never held back: nothing would become safe without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL_REPLICAS = "*"
UNLIMITED = 2**63 - 1


def is_throttled(listed: Sequence[str], partition: int, broker_id: int) -> bool:
    return bool(listed) and (ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed)


class Allowance:
    """Bytes that may be spent. Spending is noted afterwards, so it may go into debt; the rate pays it off."""

    __slots__ = ("_left_bytes", "_now_ms", "_rate")

    def __init__(self, bytes_per_s: int = UNLIMITED) -> None:
        self._rate = bytes_per_s
        self._left_bytes = 0.0
        self._now_ms = 0

    def set_rate(self, bytes_per_s: int) -> None:
        """Takes a rate, which may be the same as before."""
        if bytes_per_s != self._rate:
            self._rate = bytes_per_s
            self._left_bytes = min(self._left_bytes, float(bytes_per_s))

    def spend(self, size: int, now_ms: int) -> None:
        if self._rate < UNLIMITED:
            self._earn(now_ms)
            self._left_bytes -= size

    def wait_ms(self, now_ms: int) -> int:
        """How long until something may be spent again; 0 if it may be now."""
        if self._rate == UNLIMITED:
            return 0
        self._earn(now_ms)
        if self._left_bytes >= 0:
            return 0
        return int(-self._left_bytes * 1000 / max(self._rate, 1)) + 1

    def _earn(self, now_ms: int) -> None:
        """Not more than one second's worth is saved."""
        earned = (now_ms - self._now_ms) * self._rate / 1000
        self._left_bytes = min(self._left_bytes + earned, float(self._rate))
        self._now_ms = now_ms
