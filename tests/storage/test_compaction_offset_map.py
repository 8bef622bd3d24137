"""The map of keys: bounded, exact about long keys, and able to stop in the middle of a batch."""

from __future__ import annotations

import tracemalloc

from compaction_cases import keyed

from tidelog.records.header import BatchHeader, patch, peek
from tidelog.records.record import inflate
from tidelog.storage.compaction.offset_map import ENTRY_BYTES, KEY_BYTES_MAX, OffsetMap, digest
from tidelog.types import LeaderEpoch, Offset


def stored(base_offset: int, *keys: bytes | None) -> tuple[BatchHeader, bytes]:
    data = keyed([(key, b"v") for key in keys])
    patch(data, 0, Offset(base_offset), LeaderEpoch(0))
    header = peek(data)
    return header, inflate(data, header)


def test_a_long_key_is_itself_and_not_another_with_its_digest_for_a_name() -> None:
    long = b"k" * (KEY_BYTES_MAX + 1)
    mapping = OffsetMap(1 << 20, 0)
    mapping.add(*stored(0, long, digest(long), long[:-1]))
    assert len(mapping.offsets) == 3
    assert list(mapping.live()) == [0, 1, 2]
    mapping.add(*stored(3, long))
    assert list(mapping.live()) == [1, 2, 3]


def test_it_stops_at_the_record_that_does_not_fit() -> None:
    mapping = OffsetMap(3 * ENTRY_BYTES, 0)
    assert mapping.slots == 3
    assert mapping.add(*stored(0, b"a", b"b"))
    assert mapping.end_offset == 2
    assert mapping.add(*stored(2, b"a", b"b", b"b", b"a")), "known keys need no room"
    assert mapping.end_offset == 6
    assert not mapping.add(*stored(6, b"c", b"a", b"d", b"e"))
    assert mapping.end_offset == 8
    assert mapping.offsets == {b"a": 7, b"b": 4, b"c": 6}


def test_it_goes_on_in_the_middle_of_a_batch() -> None:
    mapping = OffsetMap(1 << 20, 8)
    assert mapping.add(*stored(6, b"c", b"a", b"d", None, b"e"))
    assert mapping.offsets == {b"d": 8, b"e": 10}
    assert mapping.keyless == 1
    assert mapping.end_offset == 11


def test_a_batch_without_keys_is_passed_over() -> None:
    mapping = OffsetMap(1 << 20, 0)
    header, _ = stored(5, b"a")
    mapping.skip(header)
    assert mapping.end_offset == 6
    assert mapping.add(*stored(6, None, None))
    assert not mapping.offsets
    assert mapping.keyless == 2


def test_a_map_has_room_for_one_key_whatever_it_is_given() -> None:
    mapping = OffsetMap(0, 0)
    assert not mapping.add(*stored(0, b"a", b"b"))
    assert mapping.end_offset == 1


def test_a_key_takes_no_more_memory_than_is_said() -> None:
    """Also while the table grows, which is when it takes most."""
    slots = 60_000
    batches = [stored(at, *[b"%033d" % (at + each) for each in range(100)]) for at in range(0, slots, 100)]
    tracemalloc.start()
    try:
        mapping = OffsetMap(slots * ENTRY_BYTES, 0)
        worst = 0.0
        for header, body in batches:
            tracemalloc.reset_peak()
            mapping.add(header, body)
            worst = max(worst, tracemalloc.get_traced_memory()[1] / len(mapping.offsets))
        live = mapping.live()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(live) == slots
    assert worst <= ENTRY_BYTES * 1.1
    assert peak <= slots * ENTRY_BYTES
