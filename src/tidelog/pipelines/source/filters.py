"""What the filters of a query say about where records lie. Pure.

A filter is only ever used to leave out what cannot pass it; Spark still applies all of them. So a filter that is not
understood is no harm. Timestamps narrow a range at its beginning only: they need not rise with offsets, and behind a
young record older ones may follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from tidelog.types import TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Records outside of it pass no filter."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    """Not included."""
    not_before_ms: int | None = None

    def admits(self, at: TopicPartition) -> bool:
        return (self.topics is None or at.topic in self.topics) and (
            self.partitions is None or at.partition in self.partitions
        )

    def from_offset(self, offset: int) -> Narrowing:
        return replace(self, first_offset=max(self.first_offset, offset))

    def up_to_offset(self, end: int) -> Narrowing:
        return replace(self, end_offset=end if self.end_offset is None else min(self.end_offset, end))

    def from_time(self, not_before_ms: int) -> Narrowing:
        return replace(self, not_before_ms=max(self.not_before_ms or 0, not_before_ms))


def narrow(filters: Iterable[Filter]) -> Narrowing:
    """All of them have to hold."""
    narrowing = Narrowing()
    for each in filters:
        match each:
            case EqualTo(attribute=(name,), value=value) | EqualNullSafe(attribute=(name,), value=value):
                narrowing = _among(narrowing, name, (value,))
            case In(attribute=(name,), value=values):
                narrowing = _among(narrowing, name, tuple(values))
            case GreaterThan(attribute=(name,), value=value):
                narrowing = _at_least(narrowing, name, value, beyond=1)
            case GreaterThanOrEqual(attribute=(name,), value=value):
                narrowing = _at_least(narrowing, name, value, beyond=0)
            case LessThan(attribute=(name,), value=value):
                narrowing = _below(narrowing, name, value, beyond=0)
            case LessThanOrEqual(attribute=(name,), value=value):
                narrowing = _below(narrowing, name, value, beyond=1)
    return narrowing


def _among(narrowing: Narrowing, name: str, values: tuple[Any, ...]) -> Narrowing:
    values = tuple(value for value in values if value is not None)
    if name == "topic":
        topics = frozenset(str(value) for value in values)
        return replace(narrowing, topics=topics if narrowing.topics is None else narrowing.topics & topics)
    if name == "partition" and _whole(values):
        chosen = frozenset(values)
        return replace(narrowing, partitions=chosen if narrowing.partitions is None else narrowing.partitions & chosen)
    if name == "offset" and _whole(values):
        return narrowing.from_offset(min(values, default=0)).up_to_offset(max(values, default=-1) + 1)
    if name == "timestamp" and values and all(map(_is_time, values)):
        return narrowing.from_time(min(map(_milliseconds, values)))
    return narrowing


def _at_least(narrowing: Narrowing, name: str, value: Any, beyond: int) -> Narrowing:
    if name == "offset" and _whole((value,)):
        return narrowing.from_offset(value + beyond)
    if name == "timestamp" and _is_time(value):
        return narrowing.from_time(_milliseconds(value))
    return narrowing


def _below(narrowing: Narrowing, name: str, value: Any, beyond: int) -> Narrowing:
    if name == "offset" and _whole((value,)):
        return narrowing.up_to_offset(value + beyond)
    return narrowing


def _whole(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _milliseconds(at: datetime) -> int:
    """Rounded down: brokers know milliseconds only."""
    return max(0, (at - _EPOCH) // timedelta(milliseconds=1))


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None
