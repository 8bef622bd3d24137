"""Verdicts and their text: pure, so by tables."""

from __future__ import annotations

import pytest

from bench.results import ADEQUATE, NO_VERDICT, SHORT, Row, at_least, below, measured_text, ratio_at_least, target_text
from bench.table import plain_lines


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("rate", 60_000, "/s", at_least(60_000)), ADEQUATE),
        (Row("rate", 59_999, "/s", at_least(60_000)), SHORT),
        (Row("time", 0.69, "s", below(0.7)), ADEQUATE),
        (Row("time", 0.7, "s", below(0.7)), SHORT),
        (Row("ratio", 76, "MB/s", ratio_at_least(0.75), 100, "C"), ADEQUATE),
        (Row("ratio", 74, "MB/s", ratio_at_least(0.75), 100, "C"), SHORT),
        (Row("ratio without its peer", 74, "MB/s", ratio_at_least(0.75)), NO_VERDICT),
        (Row("no target", 1, "s"), NO_VERDICT),
    ],
    ids=lambda value: value.name if isinstance(value, Row) else "",
)
def test_a_verdict_compares_the_figure_or_the_ratio_with_its_bound(row: Row, verdict: str) -> None:
    assert row.verdict == verdict
    assert row.as_json()["verdict"] == verdict


@pytest.mark.parametrize(
    ("figure", "text"), [(82_345.6, "82,346 /s"), (100, "100 /s"), (39.84, "39.8 /s"), (0.4512, "0.451 /s")]
)
def test_figures_show_as_many_digits_as_mean_something(figure: float, text: str) -> None:
    assert measured_text(figure, "/s") == text


def test_a_target_names_what_it_bounds() -> None:
    assert target_text(Row("start", 0.5, "s", below(0.7))) == "< 0.7 s"
    assert target_text(Row("produce", 1, "MB/s", ratio_at_least(0.9), 1, "C")) == ">= 0.9 of C"
    assert target_text(Row("free", 1, "MB/s")) == ""


def test_the_plain_table_has_a_line_per_row_in_columns() -> None:
    lines = plain_lines([Row("one", 1, "s", below(2)), Row("a longer name", 2, "MB/s", None, 4, "C", "a remark")])
    assert len(lines) == 4
    assert lines[0].startswith("what")
    assert lines[2].index("1 s") == lines[3].index("2 MB/s")
    assert "0.50" in lines[3]
    assert lines[3].endswith("a remark")
