"""Every message and version through our own codecs: there and back, cut short, damaged, and absurdly sized.

Whatever bytes arrive, a decoder gives a message or raises DecodeError; pytest's timeout stands for "never hangs".
"""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from declared_values import FEW_EXAMPLES, VERSIONED, filled, instances, unlike_default
from hypothesis import given

from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.declare import Array, Field, Message, Scalar, Struct
from tidelog.wire.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str, ...]
"""The names of the fields that lead to one, from the message down; lists stand for their first item."""

Check = Callable[[type[Message], int], None]


def over(cases: list[tuple[type[Message], int]]) -> Callable[[Check], Callable[[type[Message]], None]]:
    """One test for each message, which goes over all its versions: apart, there would be thousands."""
    versions: dict[type[Message], list[int]] = {}
    for cls, version in cases:
        versions.setdefault(cls, []).append(version)

    def decorate(check: Check) -> Callable[[type[Message]], None]:
        @pytest.mark.parametrize("cls", versions, ids=lambda cls: cls.__name__)
        def check_versions(cls: type[Message]) -> None:
            for version in versions[cls]:
                try:
                    check(cls, version)
                except BaseException as error:
                    error.add_note(f"in version {version}")
                    raise

        check_versions.__doc__ = check.__doc__
        return check_versions

    return decorate


every_version = over(VERSIONED)
every_flexible_version = over([(cls, version) for cls, version in VERSIONED if version in cls.FLEXIBLE])
every_request = over([(cls, version) for cls, version in VERSIONED if cls.IS_REQUEST])
every_reply = over([(cls, version) for cls, version in VERSIONED if not cls.IS_REQUEST])


def struct_in(field: Field) -> type[Struct] | None:
    item = field.type.item if isinstance(field.type, Array) else field.type
    return item if isinstance(item, type) else None


def fields_on_the_wire(cls: type[Struct], version: int, above: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Every field of this version at its fixed place, so without tagged ones, however deeply nested."""
    for field in cls.FIELDS:
        if version in field.placement.versions and version not in field.placement.tagged:
            yield (*above, field.name), field
            if nested := struct_in(field):
                yield from fields_on_the_wire(nested, version, (*above, field.name))


def absent_fields(cls: type[Struct], version: int, above: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Every field that this version has no place for, in structs that it does have."""
    for field in cls.FIELDS:
        if version not in field.placement.versions:
            yield (*above, field.name), field
        elif nested := struct_in(field):
            yield from absent_fields(nested, version, (*above, field.name))


def replaced(message: Any, path: Path, value: Any) -> Any:
    """A copy of a filled message that has another value at `path`."""
    name, *rest = path
    if rest:
        inner = getattr(message, name)
        inside = replaced(inner[0] if isinstance(inner, list) else inner, tuple(rest), value)
        value = [inside] if isinstance(inner, list) else inside
    return type(message)(**{f.name: value if f.name == name else getattr(message, f.name) for f in message.FIELDS})


def with_length(cls: type[Message], version: int, path: Path, field: Field, length: int) -> bytes:
    """A filled message's encoding, in which the string, bytes or list at `path` claims `length`, -1 being null.

    The place is found by encoding it empty and filled: the first byte that differs is the last byte of the length.
    """
    full = filled(cls, version)
    empty: Any = {Scalar.STRING: "", Scalar.BYTES: b"", Scalar.RECORDS: b""}.get(field.type, [])  # type: ignore[arg-type]
    one = to_bytes(full, version)
    none = to_bytes(replaced(full, path, empty), version)
    last = next(index for index, (a, b) in enumerate(zip(one, none, strict=False)) if a != b)
    if version in cls.FLEXIBLE:
        return none[:last] + uvarint(length + 1) + none[last + 1 :]
    width = 2 if field.type is Scalar.STRING else 4
    claim = min(length, (1 << (8 * width - 1)) - 1).to_bytes(width, "big", signed=True)
    return none[: last + 1 - width] + claim + none[last + 1 :]


def uvarint(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def sized_fields(cls: type[Message], version: int) -> list[tuple[Path, Field]]:
    sized = (Scalar.STRING, Scalar.BYTES, Scalar.RECORDS)
    return [(p, f) for p, f in fields_on_the_wire(cls, version) if isinstance(f.type, Array) or f.type in sized]


# --- there and back -------------------------------------------------------------------------------------------------


@every_version
def test_what_is_encoded_is_decoded(cls: type[Message], version: int) -> None:
    @FEW_EXAMPLES
    @given(instances(cls, version))
    def check(message: Message) -> None:
        assert decode(cls, to_bytes(message, version), version) == message

    check()


@every_version
def test_a_message_with_every_part_comes_back(cls: type[Message], version: int) -> None:
    message = filled(cls, version)
    encoded = to_bytes(message, version)
    assert decode(cls, encoded, version) == message
    # It need not start its buffer, and the buffer may be of any kind.
    assert decode(cls, bytearray(b"\xaa" * 3 + encoded), version, 3) == message


@every_version
def test_bytes_after_the_message_are_ignored(cls: type[Message], version: int) -> None:
    """librdkafka leaves three on an all-topics Metadata request and one on AlterUserScramCredentials."""
    message = filled(cls, version)
    assert decode(cls, to_bytes(message, version) + b"\x00\xff\x01", version) == message


@every_flexible_version
def test_tags_nobody_knows_are_skipped(cls: type[Message], version: int) -> None:
    """A newer peer may send tags of a later version. The outermost tag section ends the message."""
    full = filled(cls, version)
    message = cls(**{f.name: getattr(full, f.name) for f in cls.FIELDS if version not in f.placement.tagged})
    encoded = to_bytes(message, version)
    assert encoded[-1] == 0
    two_unknown = b"\x02" + b"\x64\x03abc" + b"\xff\x7f\x00"  # tag 100 of three bytes, tag 16383 of none
    assert decode(cls, encoded[:-1] + two_unknown, version) == message


@every_flexible_version
def test_tags_ascend_and_defaults_are_left_out(cls: type[Message], version: int) -> None:
    full = filled(cls, version)
    tagged = [field for field in cls.FIELDS if version in field.placement.tagged]
    plain = cls(**{field.name: getattr(full, field.name) for field in cls.FIELDS if field not in tagged})
    without = to_bytes(plain, version)
    section = to_bytes(full, version)[len(without) - 1 :]
    assert tag_numbers(section) == sorted(field.placement.tag for field in tagged)


def tag_numbers(section: bytes) -> list[int]:
    """Walks a tag section whose numbers and sizes each take one byte."""
    numbers, position = [], 1
    for _ in range(section[0]):
        numbers.append(section[position])
        position += 2 + section[position + 1]
    assert position == len(section)
    return numbers


# --- what a version cannot say --------------------------------------------------------------------------------------


@every_request
def test_a_request_that_an_old_version_would_garble_is_refused(cls: type[Message], version: int) -> None:
    """Leaving out what the peer should do is worse than an error; what is only a hint may be left out."""
    full = filled(cls, version)
    for path, field in absent_fields(cls, version):
        changed = replaced(full, path, unlike_default(field, field.placement.versions.first))
        if field.placement.ignorable:
            assert to_bytes(changed, version) == to_bytes(full, version)
        else:
            with pytest.raises(EncodeError, match=field.name):
                to_bytes(changed, version)


@every_reply
def test_a_reply_leaves_out_what_an_old_version_cannot_say(cls: type[Message], version: int) -> None:
    """An old client gets what it can understand, from the same reply that a new one gets."""
    full = filled(cls, version)
    for path, field in absent_fields(cls, version):
        changed = replaced(full, path, unlike_default(field, field.placement.versions.first))
        assert to_bytes(changed, version) == to_bytes(full, version)


@every_version
def test_null_is_not_written_where_it_is_not_allowed(cls: type[Message], version: int) -> None:
    full = filled(cls, version)
    for path, field in fields_on_the_wire(cls, version):
        null = replaced(full, path, None)
        if version in field.placement.nullable:
            assert decode(cls, to_bytes(null, version), version) == null
        elif field.type is not Scalar.BOOL:  # None is as good as False there
            with pytest.raises(EncodeError):
                to_bytes(null, version)


@every_version
def test_null_is_not_read_where_it_is_not_allowed(cls: type[Message], version: int) -> None:
    for path, field in sized_fields(cls, version):
        encoded = with_length(cls, version, path, field, -1)
        if version in field.placement.nullable:
            assert decode(cls, encoded, version) == replaced(filled(cls, version), path, None)
        else:
            with pytest.raises(DecodeError, match=f"{field.name} must not be null"):
                decode(cls, encoded, version)


# --- bytes that are no message --------------------------------------------------------------------------------------


@every_version
def test_cut_short_anywhere_it_is_refused(cls: type[Message], version: int) -> None:
    encoded = to_bytes(filled(cls, version), version)
    for length in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode(cls, encoded[:length], version)


@every_version
def test_a_damaged_byte_gives_a_message_or_a_refusal(cls: type[Message], version: int) -> None:
    """Each byte in turn becomes what hurts most: zero, the largest, the sign, the mark that more follows."""
    damaged = bytearray(to_bytes(filled(cls, version), version))
    for position, original in enumerate(damaged):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged[position] = value
            with contextlib.suppress(DecodeError):
                decode(cls, bytes(damaged), version)
        damaged[position] = original


@every_version
def test_noise_gives_a_message_or_a_refusal(cls: type[Message], version: int) -> None:
    source = random.Random(f"{cls.__name__} {version}")
    for size in (1, 4, 16, 64, 256):
        # Of the two kinds of noise the second gets past the first few lengths.
        for noise in (source.randbytes(size), bytes(source.choices(range(4), k=size))):
            with contextlib.suppress(DecodeError):
                decode(cls, noise, version)


@every_version
def test_a_huge_length_is_refused(cls: type[Message], version: int) -> None:
    for path, field in sized_fields(cls, version):
        for length in (2**31 - 2, 1_000_000, 30_000):
            with pytest.raises(DecodeError):
                decode(cls, with_length(cls, version, path, field, length), version)


def test_a_huge_length_is_refused_before_memory_is_taken() -> None:
    newest = [(cls, version) for cls, version in VERSIONED if version == cls.VERSIONS.last]
    frames = [
        (cls, version, with_length(cls, version, path, field, 2**31 - 2))
        for cls, version in newest
        for path, field in sized_fields(cls, version)
    ]
    for cls, version, frame in frames:  # compiles the codecs, which takes memory of its own
        with pytest.raises(DecodeError):
            decode(cls, frame, version)
    tracemalloc.start()
    try:
        for cls, version, frame in frames:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with contextlib.suppress(DecodeError):
                decode(cls, frame, version)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 20_000, cls.__name__
    finally:
        tracemalloc.stop()
