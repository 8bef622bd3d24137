"""How much goes into a batch, and how it is divided among tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipelines.source.limits import held_back, limit_by_bytes, share_out
from tidelog.pipelines.source.sampling import density
from tidelog.pipelines.source.splits import OffsetRange, bundle, split
from tidelog.records.build import build_batch
from tidelog.records.header import peek
from tidelog.records.record import Record
from tidelog.types import TopicPartition

WAITING = st.dictionaries(st.integers(0, 30), st.integers(0, 10_000), max_size=20)


@given(WAITING, st.integers(1, 50_000), st.integers(0, 1000))
def test_shares_add_up_to_the_limit_and_starve_nobody(waiting: dict[int, int], limit: int, turn: int) -> None:
    shares = share_out(waiting, limit, turn)
    total = sum(waiting.values())
    eager = [key for key, count in waiting.items() if count]
    assert shares.keys() == waiting.keys()
    assert sum(shares.values()) == min(limit, total)
    assert all(0 <= shares[key] <= count for key, count in waiting.items())
    if limit >= len(eager):
        assert all(shares[key] >= 1 for key in eager)


@given(WAITING, st.integers(100, 50_000))
def test_shares_are_in_proportion(waiting: dict[int, int], limit: int) -> None:
    total = sum(waiting.values())
    if total > limit:
        for key, share in share_out(waiting, limit).items():
            assert share <= limit * waiting[key] / total + 1
            assert share >= limit * waiting[key] / total - len(waiting)


def test_the_busy_one_gets_most() -> None:
    assert share_out({"a": 90, "b": 10}, 20) == {"a": 18, "b": 2}
    assert share_out({"a": 1_000_000, "b": 1, "c": 0}, 10) == {"a": 9, "b": 1, "c": 0}


def test_with_too_little_for_all_they_take_turns() -> None:
    waiting = dict.fromkeys("abc", 100)
    served = [[key for key, share in share_out(waiting, 1, turn).items() if share] for turn in range(3)]
    assert sorted(served) == [["a"], ["b"], ["c"]]


@given(WAITING, st.integers(1, 10_000_000), st.floats(0.1, 10_000))
def test_bytes_make_progress_and_stay_below_the_limit(waiting: dict[int, int], limit: int, density: float) -> None:
    shares = limit_by_bytes(waiting, dict.fromkeys(waiting, density), limit)
    assert all(0 <= shares[key] <= count for key, count in waiting.items())
    assert any(shares.values()) or not any(waiting.values())
    # Each partition gets a whole offset, even if that is more than its share.
    assert sum(shares.values()) * density <= limit + (density + 1) * len(waiting) * 2


def test_whole_record_batches_are_measured_by_all_their_offsets() -> None:
    batches = [
        build_batch([Record(first + number, 0, None, b"x" * 100) for number in range(50)])
        for first in (1000, 1200)  # what was between them is gone
    ]
    headers = [peek(batch) for batch in batches]
    assert density(headers[:1]) == len(batches[0]) / 50
    assert density(headers) == (len(batches[0]) + len(batches[1])) / 250


def test_few_records_wait_for_others_but_not_for_ever() -> None:
    assert held_back(5, 10, waited_s=1, longest_s=60)
    assert not held_back(10, 10, waited_s=1, longest_s=60)
    assert not held_back(5, 10, waited_s=60, longest_s=60)
    assert not held_back(5, None, waited_s=1, longest_s=60)


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=10).map(
    lambda pairs: [
        OffsetRange(TopicPartition("t", index), begin, begin + size) for index, (begin, size) in enumerate(pairs)
    ]
)


@given(RANGES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 200))
def test_pieces_are_the_whole(ranges: list[OffsetRange], fewest: int | None, largest: int | None) -> None:
    pieces = split(ranges, fewest, largest)
    offsets = sum(each.size for each in ranges)
    assert all(piece.size > 0 for piece in pieces)
    assert all(largest is None or piece.size <= largest for piece in pieces)
    assert len(pieces) >= min(fewest or 0, offsets)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        covered = [offset for piece in mine for offset in range(piece.start, piece.end)]
        assert covered == list(range(whole.start, whole.end))


def test_large_ranges_are_cut_into_more_pieces() -> None:
    ranges = [OffsetRange(TopicPartition("t", 0), 0, 90), OffsetRange(TopicPartition("t", 1), 0, 10)]
    pieces = split(ranges, 10, None)
    assert [piece.size for piece in pieces] == [10] * 10
    assert split(ranges, 2, None) == ranges
    assert split(ranges, None, None) == ranges


@given(RANGES, st.integers(1, 5), st.integers(0, 5000))
def test_bundles_are_the_whole(ranges: list[OffsetRange], most: int, small: int) -> None:
    bundles = bundle(ranges, most, small)
    assert sorted(each for bundled in bundles for each in bundled) == sorted(ranges)
    if sum(each.size for each in ranges) > small:
        assert all(len(bundled) == 1 for bundled in bundles)
    else:
        assert len(bundles) <= max(most, 0)


def test_bundles_are_of_about_the_same_size() -> None:
    ranges = [OffsetRange(TopicPartition("t", index), 0, size) for index, size in enumerate([5, 1, 1, 1, 1, 1])]
    assert sorted(sum(each.size for each in bundled) for bundled in bundle(ranges, 2, 100)) == [5, 5]
