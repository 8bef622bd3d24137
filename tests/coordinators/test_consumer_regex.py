from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.groups.regex import TopicPattern, TopicPatterns
from tidelog.errors import BrokerError, ErrorCode

names = st.text("ab0.-_", min_size=1, max_size=8)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    """Patterns that Python's own matcher reads the same way."""
    if depth == 0:
        return draw(st.sampled_from(["a", "b", "0", r"\.", ".", "[ab]", "[^a]", "[a-b0]", r"\d", r"\w", r"\W", "[_-]"]))
    smaller = patterns(depth - 1)
    match draw(st.integers(0, 6)):
        case 0:
            return draw(smaller) + draw(smaller)
        case 1:
            return f"({draw(smaller)}|{draw(smaller)})"
        case 2:
            return f"(?:{draw(smaller)}){draw(st.sampled_from(['*', '+', '?', '*?', '+?', '{2}', '{1,2}', '{0,}']))}"
        case 3:
            return f"^{draw(smaller)}$"
        case 4:
            return f"(?P<g{depth}>{draw(smaller)})" if depth == 3 else draw(smaller)
        case 5:
            return f"{draw(smaller)}.*"
        case _:
            return draw(smaller)


@given(patterns(), st.lists(names, max_size=5))
def test_whole_names_match_as_they_do_elsewhere(pattern: str, candidates: list[str]) -> None:
    ours, theirs = TopicPattern(pattern), re.compile(pattern)
    for name in candidates:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("orders-.*", ["orders-eu", "orders-"], ["orders"]),
        ("^orders", ["orders"], ["orders-eu"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("a(?i)b|c", ["ab", "aB", "c", "C"], ["Ab"]),
        ("(?i:a)b", ["ab", "Ab"], ["aB"]),
        ("(?-i)a", ["a"], ["A"]),
        ("eu|us", ["eu", "us"], ["euus"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"\Qa.b\E.", ["a.bx"], ["axbx"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"\x61\x{62}", ["ab"], ["b"]),
        ("[[:alpha:]]+", ["abc"], ["ab1"]),
        ("[[:^digit:]]", ["a"], ["1"]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d.]", ["1", "."], ["a"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{0}b", ["b"], ["ab"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("()", [], ["a"]),
        ("|a", ["a"], ["b"]),
        (r"\Aa\z", ["a"], ["aa"]),
        ("(?<name>a)", ["a"], ["b"]),
        ("a$b", [], ["ab", "a"]),
        ("é", [], ["e"]),
        (r"\s", [], ["a"]),
    ],
)
def test_the_syntax(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in [*matching, *others] if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "[b-a]",
        r"[a-\d]",
        "[[:nonsense:]]",
        "*",
        "a**",
        "a*+",
        "a|*",
        "a{2}{3}",
        "a{3,2}",
        "a{1001}",
        "a{99999999999}",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?P<a",
        "(?P<1>a)",
        "(?x)a",
        "(?i",
        "(?",
        "\\",
        r"\1",
        r"\pL",
        r"\b",
        r"\x",
        r"\xg1",
        r"\x{110000}",
        r"\x{",
        "(" * 101 + "a" + ")" * 101,
        "a" * 4097,
        "((a{50}){50}){50}",
        "(((){1000}){1000}){1000}",
    ],
)
def test_what_cannot_be_matched_is_refused(pattern: str) -> None:
    with pytest.raises(BrokerError) as refused:
        TopicPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message


@given(st.text("ab.*+?()[]{}|^$\\-:<>=!iPQEdx,012", max_size=30))
def test_any_text_is_read_or_refused(pattern: str) -> None:
    try:
        compiled = TopicPattern(pattern)
    except BrokerError as refused:
        assert refused.code is ErrorCode.INVALID_REGULAR_EXPRESSION  # noqa: PT017 -- both ends are fine
    else:
        compiled.matches("ab")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*(a*)*(a*)*b", "(a|aa)+b", "(.*a){20}b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """Backtracking would take longer than anyone waits for the answer."""
    compiled = TopicPattern(pattern)
    for length in range(200, 249):
        assert not compiled.matches("a" * length)


def test_states_are_not_kept_without_end() -> None:
    compiled = TopicPattern("(a|b)*a(a|b){12}")
    for number in range(3000):
        text = f"{number:013b}".replace("0", "a").replace("1", "b")
        assert compiled.matches(text) == (text[-13] == "a")


def test_topics_that_come_and_go() -> None:
    patterns = TopicPatterns()
    patterns.show(["orders-eu", "users", "__consumer_offsets"])
    assert patterns.matching("orders-.*") == {"orders-eu"}
    assert patterns.matching(".*") == {"orders-eu", "users"}, "the coordinators' own topics are not meant"
    patterns.show(["orders-eu", "orders-us", "__consumer_offsets"])
    assert patterns.matching("orders-.*") == {"orders-eu", "orders-us"}
    assert patterns.matching(".*") == {"orders-eu", "orders-us"}
    patterns.show([])
    assert patterns.matching(".*") == frozenset()


def test_a_stored_pattern_that_makes_no_sense_matches_nothing() -> None:
    patterns = TopicPatterns()
    patterns.show(["a"])
    assert patterns.matching("(") == frozenset()


def test_patterns_are_not_kept_without_end() -> None:
    patterns = TopicPatterns()
    patterns.show(["t1", "t1500"])
    for number in range(2000):
        assert patterns.matching(f"t{number}") == {f"t{number}"} & {"t1", "t1500"}
    assert len(patterns._patterns) <= 1000
