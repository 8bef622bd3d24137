"""What the driver makes of what brokers say: filters, losses, topics that come and go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tidelog.pipelines.source.errors import DataLost
from tidelog.pipelines.source.filters import Narrowing, narrow
from tidelog.pipelines.source.losing import check_bounds
from tidelog.pipelines.source.reconciling import created_anew, find_footing
from tidelog.types import ZERO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
OLD, NEW = TopicId(b"o" * 16), TopicId(b"n" * 16)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Narrowing()),
        ([EqualTo(("topic",), "a")], Narrowing(topics=frozenset("a"))),
        ([In(("topic",), ("a", "b")), EqualNullSafe(("topic",), "b")], Narrowing(topics=frozenset("b"))),
        ([EqualTo(("topic",), None)], Narrowing(topics=frozenset())),
        ([In(("partition",), (1, 2)), EqualTo(("partition",), 3)], Narrowing(partitions=frozenset())),
        ([GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 9)], Narrowing(first_offset=6, end_offset=10)),
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], Narrowing(first_offset=5, end_offset=9)),
        ([In(("offset",), (7, 3))], Narrowing(first_offset=3, end_offset=8)),
        ([GreaterThan(("offset",), 5), GreaterThan(("offset",), 2)], Narrowing(first_offset=6)),
        ([LessThan(("offset",), 5), LessThan(("offset",), 2)], Narrowing(end_offset=2)),
        ([GreaterThan(("timestamp",), NOON)], Narrowing(not_before_ms=NOON_MS)),
        ([EqualTo(("timestamp",), NOON)], Narrowing(not_before_ms=NOON_MS)),
        ([LessThan(("timestamp",), NOON)], Narrowing()),
        ([GreaterThan(("timestamp",), NOON.replace(tzinfo=None))], Narrowing()),
        ([GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))], Narrowing(not_before_ms=0)),
        ([Not(EqualTo(("topic",), "a")), IsNotNull(("offset",)), EqualTo(("value",), b"x")], Narrowing()),
        ([EqualTo(("headers", "key"), "x"), EqualTo(("offset",), True)], Narrowing()),
    ],
)
def test_filters_say_where_records_lie(filters: list[Filter], expected: Narrowing) -> None:
    assert narrow(filters) == expected


COMPARISONS = {
    GreaterThan: int.__gt__,
    GreaterThanOrEqual: int.__ge__,
    LessThan: int.__lt__,
    LessThanOrEqual: int.__le__,
    EqualTo: int.__eq__,
}


@given(st.lists(st.tuples(st.sampled_from(list(COMPARISONS)), st.integers(-2, 12)), max_size=4))
def test_no_record_that_passes_is_left_out(chosen: list[tuple[type[GreaterThan], int]]) -> None:
    narrowing = narrow([kind(("offset",), value) for kind, value in chosen])
    for offset in range(10):
        if all(COMPARISONS[kind](offset, value) for kind, value in chosen):
            assert narrowing.first_offset <= offset
            assert narrowing.end_offset is None or offset < narrowing.end_offset


def test_nothing_is_lost_as_long_as_everything_is_there() -> None:
    footing = find_footing({AT: 5}, {AT: OLD}, {AT: OLD}, {}, {AT: 9})
    assert (footing.begins, footing.losses) == ({AT: 5}, ())


@pytest.mark.parametrize(
    ("start", "partitions", "earliest", "ends", "begins", "loss"),
    [
        ({AT: 5}, {}, {}, {}, {}, "orders-0: reading has come to offset 5, but the partition does not exist any more"),
        ({AT: 5}, {AT: NEW}, {AT: 0}, {AT: 9}, {AT: 0}, "topic orders was deleted and created anew"),
        ({AT: 5}, {AT: OLD}, {}, {AT: 3}, {AT: 3}, "the partition now ends at offset 3"),
        ({AT: 5}, {AT: OLD}, {AT: 1}, {AT: 3}, {AT: 1}, "the partition now ends at offset 3"),
        ({AT: 5}, {AT: OLD}, {AT: 7}, {AT: 9}, {AT: 7}, "offsets 5 to 6 were to be read, but the partition now begins"),
        ({}, {OTHER: OLD}, {OTHER: 4}, {OTHER: 9}, {OTHER: 4}, "orders-1 is new, and offsets 0 to 3 of it"),
    ],
)
def test_every_loss_is_named(
    start: dict[TopicPartition, int],
    partitions: dict[TopicPartition, TopicId],
    earliest: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    begins: dict[TopicPartition, int],
    loss: str,
) -> None:
    footing = find_footing(start, partitions, {AT: OLD}, earliest, ends)
    assert footing.begins == begins
    (told,) = footing.losses
    assert loss in told


def test_new_partitions_begin_at_their_beginning() -> None:
    footing = find_footing({AT: 5}, {AT: OLD, OTHER: OLD}, {AT: OLD}, {OTHER: 0}, {AT: 5, OTHER: 3})
    assert (footing.begins, footing.losses) == ({AT: 5, OTHER: 0}, ())


def test_brokers_without_topic_ids_cannot_tell_topics_apart() -> None:
    assert created_anew({AT: NEW}, {AT: OLD}) == {AT}
    assert created_anew({AT: ZERO_TOPIC_ID}, {AT: OLD}) == set()
    assert created_anew({AT: NEW}, {AT: ZERO_TOPIC_ID}) == set()
    assert created_anew({AT: NEW}, {}) == set()


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 10), st.integers(10, 20))
def test_what_is_read_is_there(start: int, end: int, first: int, last: int) -> None:
    begins, ends = check_bounds({AT: start}, {AT: end}, {AT: first}, {AT: last}, fail=False)
    assert ends[AT] <= last
    assert begins[AT] <= ends[AT]
    if start < end:
        inside = [offset for offset in range(start, end) if first <= offset < last]
        assert list(range(begins[AT], ends[AT])) == inside
    whole = first <= start <= last and end <= last
    if not whole and start < end:
        with pytest.raises(DataLost):
            check_bounds({AT: start}, {AT: end}, {AT: first}, {AT: last}, fail=True)
