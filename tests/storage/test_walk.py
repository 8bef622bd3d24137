"""Walking a file of batches: every batch, and never beyond the first thing that is none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_cases import batch_of

from tidelog.storage.walk import Damage, Place, checked, headers, place_at, places
from tidelog.testing.forgetful_fs import ForgetfulFile, ForgetfulFilesystem


def file_of(data: bytes) -> ForgetfulFile:
    file = ForgetfulFilesystem().open("/0", create=True)
    file.pwrite(data, 0)
    return file


def stored(count: int, size: int = 10, base: int = 0) -> list[bytes]:
    return [bytes(batch_of([b"x" * size] * 2, base_offset=base + at * 2, leader_epoch=0)) for at in range(count)]


@pytest.mark.parametrize("size", [0, 5000, 300_000])
def test_all_walks_agree_whatever_the_size_of_batches(size: int) -> None:
    batches = stored(20 if size < 10_000 else 6, size, base=50)
    data = b"".join(batches)
    file = file_of(data)
    expected = []
    position = 0
    for at, batch in enumerate(batches):
        expected.append(Place(position, len(batch), 50 + at * 2, 51 + at * 2))
        position += len(batch)
    assert list(places(file, 0, len(data))) == expected
    assert [place_at(file, each.position, len(data)) for each in expected] == expected
    assert [(at, each.base_offset) for at, each in headers(file, 0, len(data), 50)] == [
        (each.position, each.base_offset) for each in expected
    ]
    assert [(at, sound) for at, _, sound in checked(file, 0, len(data), 50)] == [
        (each.position, True) for each in expected
    ]


def test_a_batch_larger_than_a_read_is_checked_piece_by_piece() -> None:
    (batch,) = stored(1, 2_000_000)
    assert [sound for *_, sound in checked(file_of(batch), 0, len(batch), 0)] == [True]
    damaged = bytearray(batch)
    damaged[3_999_000] ^= 1
    assert [sound for *_, sound in checked(file_of(bytes(damaged)), 0, len(batch), 0)] == [False]


def test_walks_start_and_end_where_they_are_told() -> None:
    batches = stored(5)
    size = len(batches[0])
    file = file_of(b"".join(batches))
    assert [each.base_offset for each in places(file, size, 3 * size)] == [2, 4]
    assert [each.base_offset for _, each in headers(file, size, 3 * size, 0)] == [2, 4]


def replaced(batch: bytes, at: int, value: bytes) -> bytes:
    return batch[:at] + value + batch[at + len(value) :]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda batch: batch[:30], "too few|left"),
        (lambda batch: batch[:11], "too few"),
        (lambda batch: replaced(batch, 16, b"\x01"), "magic 1"),
        (lambda batch: bytes(len(batch)), "magic 0"),
        (lambda batch: replaced(batch, 8, struct.pack(">i", 5)), "less than its header"),
        (lambda batch: replaced(batch, 8, struct.pack(">i", -1)), "less than its header"),
        (lambda batch: replaced(batch, 8, struct.pack(">i", 2**31 - 1)), "are left"),
        (lambda batch: replaced(batch, 0, struct.pack(">q", -5)), "base offset -5"),
        (lambda batch: replaced(batch, 23, struct.pack(">i", -1)), "delta of -1"),
    ],
)
def test_what_cannot_be_a_batch_ends_every_walk(bad: object, reason: str) -> None:
    assert callable(bad)
    first, second = stored(2)
    data = first + bad(second)
    file = file_of(data)
    for walk in (places(file, 0, len(data)), headers(file, 0, len(data), 0), checked(file, 0, len(data), 0)):
        next(walk)  # the batch before it is seen
        with pytest.raises(Damage, match=reason) as damage:
            next(walk)
        assert damage.value.position == len(first)
    with pytest.raises(Damage):
        place_at(file, len(first), len(data))


def test_offsets_that_go_back_or_too_far_are_damage() -> None:
    back = b"".join([*stored(1, base=10), *stored(1, base=11)])
    far = b"".join([*stored(1), *stored(1, base=2**31)])
    before = b"".join(stored(1, base=5))
    for data, base in ((back, 0), (far, 0), (before, 6)):
        with pytest.raises(Damage, match="offset"):
            list(headers(file_of(data), 0, len(data), base))
        with pytest.raises(Damage, match="offset"):
            list(checked(file_of(data), 0, len(data), base))


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, 3))
def test_garbage_is_survived(garbage: bytes, good: int) -> None:
    data = b"".join(stored(good)) + garbage
    file = file_of(data)
    for walk in (places(file, 0, len(data)), headers(file, 0, len(data), 0), checked(file, 0, len(data), 0)):
        seen = 0
        try:
            for _ in walk:
                seen += 1
        except Damage:
            pass
        assert seen >= good


def test_a_file_that_is_shorter_than_it_was_is_damage() -> None:
    (batch,) = stored(1, 3000)
    with pytest.raises(Damage):
        list(places(file_of(b""), 0, len(batch)))
    assert [sound for *_, sound in checked(file_of(batch[:2000]), 0, len(batch), 0)] == [False]
