from __future__ import annotations

import json

import pytest

from tidelog.cli.names import unknown_topic
from tidelog.cli.output import human_bytes, show_json, show_table
from tidelog.cli.record_json import json_text, record_fields
from tidelog.client.fetching import ConsumerRecord


def test_a_table_in_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["name", "count", "note"], [["a" * 200, 5, None], ["b", 12345, "x"]])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header == f"{'NAME'.ljust(200)}  COUNT  NOTE"
    assert first == f"{'a' * 200}      5  -"
    assert second == f"{'b'.ljust(200)}  12345  x"


def test_formatted_numbers_are_numbers_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["n"], [["1,234.50"], ["7"]])
    assert capsys.readouterr().out.splitlines() == ["       N", "1,234.50", "       7"]


def test_an_empty_table_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["a", "b"], [])
    assert capsys.readouterr().out == "A  B\n"


def test_json_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"ä": 1}])
    assert capsys.readouterr().out == '[{"ä": 1}]\n'


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1_500_000, "1.5 MB"), (2.5e12, "2.5 TB")]
)
def test_sizes_are_for_people(size: float, text: str) -> None:
    assert human_bytes(size) == text


def test_what_is_not_text_is_base64() -> None:
    record = ConsumerRecord("t", 1, 2, 3, b"k\xc3\xa9y", b"\xff\xfe", (("h", None), ("b\udcff", b"x")))
    fields = record_fields(record)
    assert fields == {
        "offset": 2,
        "timestamp": 3,
        "key": "kéy",
        "value": {"base64": "//4="},
        "headers": [["h", None], [{"base64": "Yv8="}, "x"]],
    }
    assert json.loads(json.dumps(fields)) == fields
    assert json_text(None) is None


def test_a_misspelt_topic_is_recognised() -> None:
    assert unknown_topic("ordres", ["orders", "clicks"]) == "there is no topic 'ordres': did you mean 'orders'?"
    assert unknown_topic("x", ["orders"]) == "there is no topic 'x': create it with `tidelog topic create x`"
