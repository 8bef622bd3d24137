from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.starts import Start, format_time, parse_start, parse_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(word="earliest")),
        ("LATEST", Start(word="latest")),
        ("42", Start(offset=42)),
        ("0", Start(offset=0)),
        ("-10", Start(last=10)),
        ("@1700000000000", Start(timestamp_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Start(timestamp_ms=1_700_000_000_000)),
        ("2023-11-14T23:13:20+01:00", Start(timestamp_ms=1_700_000_000_000)),
    ],
)
def test_a_start_is_read(text: str, expected: Start) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "4.5", "@", "@x", "--1", "2h ago", "10w"])
def test_what_is_no_start_is_explained(text: str) -> None:
    with pytest.raises(ValueError, match="is not earliest, latest, an offset"):
        parse_start(text)


@pytest.mark.parametrize(
    ("text", "ago_ms"), [("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_a_time_ago_is_counted_back(text: str, ago_ms: int) -> None:
    assert parse_time(text, now_ms=1_000_000_000) == 1_000_000_000 - ago_ms


def test_no_time_lies_before_1970() -> None:
    assert parse_time("999999d", now_ms=5) == 0


@given(st.integers(0, 4_000_000_000_000))
def test_times_survive_being_written(timestamp_ms: int) -> None:
    assert abs(parse_time(format_time(timestamp_ms)) - timestamp_ms) <= 1
