"""Java's .properties format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.definition import ConfigError
from tidelog.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t=  b c ", {"a": "b c "}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# note\n! note\n\n  # note\na=b", {"a": "b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\na=c", {"a": "c"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\n# not a note", {"a": "one# not a note"}),
        ("a=one\\\n\nb=c", {"a": "one", "b": "c"}),
        ("a=end\\", {"a": "end"}),
        ("a=c:\\\\dir\\\\", {"a": "c:\\dir\\"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("", {}),
    ],
)
def test_parses(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_bad_escapes_are_all_named_with_their_lines() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_properties("a=\\u12\nb=c\nd=\\uXYZW")
    assert [problem[:7] for problem in refusal.value.problems] == ["Line 1:", "Line 3:"]


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if not char.isalnum() or not char.isascii() else char for char in text)


PLAIN = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=10)


@given(st.dictionaries(PLAIN.filter(bool), PLAIN, max_size=5))
def test_what_is_escaped_comes_back(properties: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


@given(st.text(alphabet="ab\\=: \t\n\r#!u0", max_size=40))
def test_any_text_parses_or_is_refused_with_a_config_error(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigError as refusal:
        assert refusal.problems  # noqa: PT017 - few texts are refused
