"""How much to measure: a full run, or a quick look."""

from __future__ import annotations

from typing import NamedTuple


class Plan(NamedTuple):
    trials: int
    seconds: float
    """The longest that one trial of the raw generator takes."""
    bytes: int
    """The most that it moves."""
    client_bytes: int
    """What one trial through librdkafka moves."""
    partitions: int


FULL = Plan(trials=5, seconds=1.0, bytes=1 << 30, client_bytes=256 << 20, partitions=10_000)
SHORT = Plan(trials=1, seconds=0.3, bytes=64 << 20, client_bytes=8 << 20, partitions=200)
