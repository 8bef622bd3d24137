"""Variable-length integers, tag sections, and the lengths that come before strings, bytes and lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.declare import Array, Bytes, Int32, Message, String, at, message
from tidelog.wire.errors import DecodeError, EncodeError
from tidelog.wire.primitives import ARRAY_ELEMENTS_MAX, read_uvarint, skip_tags, write_uvarint


@message(versions="0-1", flexible="1+")
class Sized(Message):
    text: String | None = at("0+", nullable="0+")
    blob: Bytes | None = at("0+", nullable="0+")
    items: list[Int32] | None = at("0+", nullable="0+")


@message(versions="0", flexible="0+")
class Names(Message):
    names: list[String] = at("0+")


PLAIN, COMPACT = 0, 1


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


# --- variable-length integers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (1, b"\x01"),  # zig-zag, as in records, would give 2
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_integers_go_seven_bits_at_a_time_least_first(value: int, encoded: bytes) -> None:
    assert uvarint(value) == encoded
    assert read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@given(st.integers(0, 2**32 - 1))
def test_integers_come_back(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(memoryview(b"." + encoded + b"."), 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 20])
def test_integers_of_more_than_32_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(memoryview(encoded), 0)


def test_negative_integers_cannot_be_written() -> None:
    with pytest.raises(EncodeError):
        uvarint(-1)


# --- tag sections ---------------------------------------------------------------------------------------------------


def test_unknown_tags_are_stepped_over_by_their_sizes() -> None:
    section = uvarint(7) + uvarint(3) + b"abc" + uvarint(900) + uvarint(200) + b"x" * 200
    assert skip_tags(memoryview(b"." + section + b"rest"), 1, 2, 5 + len(section)) == 1 + len(section)


@pytest.mark.parametrize(
    ("section", "count"),
    [(uvarint(7) + uvarint(4) + b"abc", 1), (b"\x00\x00", 2**31), (uvarint(7) + uvarint(2**32 - 1), 1)],
    ids=["size beyond the end", "more tags than bytes", "huge size"],
)
def test_tags_that_do_not_fit_are_refused(section: bytes, count: int) -> None:
    with pytest.raises(DecodeError):
        skip_tags(memoryview(section), 0, count, len(section))


# --- lengths --------------------------------------------------------------------------------------------------------


def test_plain_lengths_are_two_bytes_for_strings_and_four_for_the_rest() -> None:
    assert to_bytes(Sized(text="é", blob=b"\xff", items=[1, 2]), PLAIN) == (
        b"\x00\x02\xc3\xa9" + b"\x00\x00\x00\x01\xff" + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x02"
    )


def test_plain_null_is_a_length_of_minus_one() -> None:
    null = Sized(text=None, blob=None, items=None)
    assert to_bytes(null, PLAIN) == b"\xff\xff" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff"
    assert decode(Sized, to_bytes(null, PLAIN), PLAIN) == null


def test_compact_lengths_are_one_more_than_the_length() -> None:
    assert to_bytes(Sized(text="é", blob=b"\xff", items=[1]), COMPACT) == (
        b"\x03\xc3\xa9" + b"\x02\xff" + b"\x02\x00\x00\x00\x01" + b"\x00"
    )
    assert to_bytes(Sized(text="x" * 126, blob=b"", items=[]), COMPACT)[:2] == b"\x7fx"
    assert to_bytes(Sized(text="x" * 127, blob=b"", items=[]), COMPACT)[:3] == b"\x80\x01x"


def test_compact_null_is_zero_and_empty_is_one() -> None:
    assert to_bytes(Sized(text=None, blob=None, items=None), COMPACT) == b"\x00\x00\x00" + b"\x00"
    assert to_bytes(Sized(text="", blob=b"", items=[]), COMPACT) == b"\x01\x01\x01" + b"\x00"


@pytest.mark.parametrize("version", [PLAIN, COMPACT])
@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 16384, 32767])
def test_lengths_around_the_edges_come_back(version: int, length: int) -> None:
    sized = Sized(text="x" * length, blob=b"y" * length, items=[7] * length)
    assert decode(Sized, to_bytes(sized, version), version) == sized


def test_a_string_too_long_for_its_length_cannot_be_written() -> None:
    too_long = Sized(text="x" * 32768, blob=None, items=None)
    with pytest.raises(EncodeError):
        to_bytes(too_long, PLAIN)
    assert decode(Sized, to_bytes(too_long, COMPACT), COMPACT) == too_long


@pytest.mark.parametrize(
    "values",
    [
        {"text": "\ud800", "blob": None, "items": None},
        {"text": None, "blob": "text", "items": None},
        {"text": None, "blob": None, "items": [2**31]},
        {"text": None, "blob": None, "items": ["1"]},
        {"text": None, "blob": None, "items": 3},
    ],
    ids=["half a surrogate pair", "text for bytes", "integer too large", "text for a number", "number for a list"],
)
@pytest.mark.parametrize("version", [PLAIN, COMPACT])
def test_values_of_the_wrong_kind_cannot_be_written(values: dict[str, object], version: int) -> None:
    with pytest.raises(EncodeError):
        to_bytes(Sized(**values), version)  # type: ignore[arg-type]


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode(Sized, b"\x00\x02\xc3\x28" + b"\xff" * 8, PLAIN)


def test_the_items_of_a_list_are_never_null() -> None:
    with pytest.raises(DecodeError, match="names must not be null"):
        decode(Names, b"\x03" + b"\x02a" + b"\x00" + b"\x00", 0)


def test_a_list_is_limited_even_when_the_bytes_are_there() -> None:
    count = ARRAY_ELEMENTS_MAX + 1
    with pytest.raises(DecodeError, match="items"):
        decode(Names, uvarint(count + 1) + b"\x01" * count + b"\x00", 0)


def test_a_list_cannot_have_more_items_than_the_bytes_left_can_hold() -> None:
    """Twelve bytes hold three integers, so a claim of four is refused without trying."""
    assert isinstance(Sized.FIELDS[2].type, Array)
    encoded = b"\xff\xff" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x04" + bytes(12)
    with pytest.raises(DecodeError, match="4 items where 12 bytes"):
        decode(Sized, encoded, PLAIN)
