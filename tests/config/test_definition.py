"""One key: what it accepts, what it refuses, and what it says then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.definition import (
    Check,
    ConfigType,
    Definition,
    Value,
    at_least,
    between,
    close_matches,
    exactly_or,
    format_value,
    not_empty,
    one_of,
)


def key(kind: ConfigType, check: Check | None = None) -> Definition:
    return Definition("some.key", kind, None, "A key.", check)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.INT, " 12 ", 12),
        (ConfigType.INT, "+5", 5),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.LIST, "a, b ,c", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
        (ConfigType.PASSWORD, "secret", "secret"),
    ],
)
def test_parses(kind: ConfigType, text: str, value: Value) -> None:
    parsed = key(kind).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.SHORT, "32768"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, "9" * 5000),
        (ConfigType.LONG, "-9223372036854775809"),
        (ConfigType.LONG, ""),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, "0x1"),
    ],
)
def test_refuses_and_names_the_key(kind: ConfigType, text: str) -> None:
    with pytest.raises(ValueError, match=r"for configuration some\.key: must be"):
        key(kind).parse(text)


@pytest.mark.parametrize(
    ("definition", "good", "bad", "said"),
    [
        (key(ConfigType.INT, check=at_least(1)), "1", "0", "must be at least 1."),
        (key(ConfigType.INT, check=between(1, 9)), "9", "10", "must be between 1 and 9."),
        (key(ConfigType.INT, check=exactly_or(-1, between(1, 9))), "-1", "0", "must be -1, or between 1 and 9."),
        (key(ConfigType.STRING, check=one_of("a", "b")), "b", "c", "must be one of a, b."),
        (key(ConfigType.LIST, check=one_of("a", "b")), "b,a", "a,c", "must be one or more of a, b."),
        (key(ConfigType.LIST, check=one_of("a", "b")), "a", "", "must be one or more of a, b."),
        (key(ConfigType.LIST, check=one_of("a", "b")), "a", "a,a", "names the same value twice."),
        (key(ConfigType.STRING, check=not_empty), "x", " ", "must not be empty."),
    ],
)
def test_limits(definition: Definition, good: str, bad: str, said: str) -> None:
    definition.parse(good)
    with pytest.raises(ValueError) as refusal:
        definition.parse(bad)
    assert str(refusal.value).endswith(said)


def test_a_password_is_never_repeated_in_a_refusal() -> None:
    with pytest.raises(ValueError) as refusal:
        key(ConfigType.PASSWORD, check=one_of("x")).parse("hunter2")
    assert "hunter2" not in str(refusal.value)


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)))
def test_what_is_formatted_parses_back(value: float) -> None:
    kinds = {bool: ConfigType.BOOLEAN, int: ConfigType.LONG, float: ConfigType.DOUBLE}
    text = format_value(value)
    assert text is not None
    assert key(kinds[type(value)]).parse(text) == value


@given(st.sampled_from(ConfigType), st.text(max_size=30))
def test_any_text_parses_or_is_refused_with_a_value_error(kind: ConfigType, text: str) -> None:
    try:
        key(kind).parse(text)
    except ValueError as refusal:
        assert "some.key" in str(refusal)  # noqa: PT017 - most texts are refused, not all


def test_unset_and_lists_format_as_describe_configs_writes_them() -> None:
    assert format_value(None) is None
    assert format_value(("a", "b")) == "a,b"
    assert format_value(value=True) == "true"


def test_close_matches_suggests_only_near_names() -> None:
    assert close_matches("retention.m", ["retention.ms", "segment.ms"]) == " Did you mean retention.ms?"
    assert close_matches("zzz", ["retention.ms"]) == ""
