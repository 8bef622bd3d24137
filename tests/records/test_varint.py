from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records.varint import INT32_BYTES_MAX, INT64_BYTES_MAX, BadVarint, from_raw, read_raw, write_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    raw, end = read_raw(bytes(out), 0, INT64_BYTES_MAX)
    assert (from_raw(raw), end) == (value, len(out))


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_every_int32_comes_back_from_anywhere(value: int, before: bytes, after: bytes) -> None:
    out = bytearray(before)
    write_varint(out, value)
    end = len(out)
    raw, position = read_raw(bytes(out + after), len(before), INT32_BYTES_MAX)
    assert (from_raw(raw), position) == (value, end)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_int64_comes_back(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert len(out) <= INT64_BYTES_MAX
    raw, _ = read_raw(bytes(out), 0, INT64_BYTES_MAX)
    assert from_raw(raw) == value


@pytest.mark.parametrize(
    ("data", "bytes_max"),
    [
        ("8080808080", INT32_BYTES_MAX),
        ("808080808001", INT32_BYTES_MAX),
        ("ffffffff1f", INT32_BYTES_MAX),
        ("ffffffffffffffffffff", INT64_BYTES_MAX),
        ("ffffffffffffffffff02", INT64_BYTES_MAX),
    ],
)
def test_numbers_wider_than_their_type_are_refused(data: str, bytes_max: int) -> None:
    with pytest.raises(BadVarint, match="does not fit"):
        read_raw(bytes.fromhex(data), 0, bytes_max)


@pytest.mark.parametrize("data", ["", "80", "ffff"])
def test_a_number_that_ends_too_early_is_an_index_error(data: str) -> None:
    with pytest.raises(IndexError):
        read_raw(bytes.fromhex(data), 0, INT32_BYTES_MAX)
