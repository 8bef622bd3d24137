"""`produce` and `consume` as programs among others: pipes, signals, exit codes."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

TIDELOG = [sys.executable, "-m", "tidelog"]


def start(bootstrap: str, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    # Where tests run in the background of a shell they ignore Ctrl-C, and programs that they start would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen([*TIDELOG, *arguments, "--bootstrap", bootstrap], **streams)


def tidelog(bootstrap: str, *arguments: str, given: bytes = b"", code: int = 0) -> bytes:
    process = start(bootstrap, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(given, timeout=60)
    assert process.returncode == code, err
    return out if code == 0 else err


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    """A topic with one partition."""
    assert run(["topic", "create", topic, "--partitions", "1", "--bootstrap", bootstrap]) == 0
    return topic


def test_lines_come_back_as_they_were_typed(bootstrap: str, made: str) -> None:
    lines = b"first\n\n\xff not text\nwith\ttab\nlast without end"
    tidelog(bootstrap, "produce", made, given=lines)
    assert tidelog(bootstrap, "consume", made, "--from", "earliest", "--exit-at-end") == lines + b"\n"


def test_keys_and_headers_travel_along(bootstrap: str, made: str) -> None:
    options = ["--key-separator", "=>", "--header", "a=1", "--header", "b=x=y", "--compression", "zstd", "--acks", "1"]
    tidelog(bootstrap, "produce", made, *options, given=b"k1=>v1\n=>no key text\nk\xff=>v\xff\n")
    out = tidelog(bootstrap, "consume", made, "--from", "0", "--max", "3", "--json")
    first, second, third = (json.loads(line) for line in out.splitlines())
    assert (first["topic"], first["partition"], first["offset"]) == (made, 0, 0)
    assert (first["key"], first["value"]) == ("k1", "v1")
    assert first["headers"] == [["a", "1"], ["b", "x=y"]]
    assert (second["key"], second["value"]) == ("", "no key text")
    assert third["value"] == {"base64": base64.b64encode(b"v\xff").decode()}
    out = tidelog(bootstrap, "consume", made, "--from", "earliest", "--max", "1", "--keys", "--key-separator", "|")
    assert out == b"k1|v1\n"


def test_a_line_without_a_key_is_an_error(bootstrap: str, made: str) -> None:
    told = tidelog(bootstrap, "produce", made, "--key-separator", ":", given=b"a:b\nnone here\n", code=1)
    assert told == b"tidelog: line 2 has no key separator: 'none here'\n"


def test_a_summary_is_given_to_programs(bootstrap: str, made: str) -> None:
    summary = json.loads(tidelog(bootstrap, "produce", made, "--json", given=b"x\n" * 5000))
    assert (summary["topic"], summary["delivered"], summary["failed"]) == (made, 5000, 0)


def test_records_that_are_refused_make_exit_code_1(bootstrap: str, made: str) -> None:
    run(["topic", "config", "set", made, "max.message.bytes=100", "--bootstrap", bootstrap])
    told = tidelog(bootstrap, "produce", made, given=b"small\n" + b"x" * 500 + b"\n", code=1)
    assert b"1 of 2 records were not delivered" in told
    assert b"max.message.bytes" in told
    assert tidelog(bootstrap, "consume", made, "--from", "earliest", "--exit-at-end") == b"small\n"


def test_a_file_can_be_sent_to_one_partition(bootstrap: str, topic: str, tmp_path: Path) -> None:
    run(["topic", "create", topic, "--partitions", "3", "--bootstrap", bootstrap])
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    tidelog(bootstrap, "produce", topic, "--file", str(path), "--partition", "2")
    out = tidelog(bootstrap, "consume", topic, "--partition", "2", "--from", "earliest", "--exit-at-end")
    assert out == path.read_bytes()
    assert tidelog(bootstrap, "consume", topic, "--partition", "0", "--from", "earliest", "--exit-at-end") == b""
    assert b"partitions 0 to 2" in tidelog(bootstrap, "produce", topic, "--partition", "9", code=1)


@pytest.mark.parametrize(
    ("start_text", "expected"),
    [("earliest", 0), ("latest", 10), ("7", 7), ("99", 10), ("-3", 7), ("-99", 0), ("1h", 0), ("@0", 0)],
)
def test_reading_begins_where_it_is_told(bootstrap: str, made: str, start_text: str, expected: int) -> None:
    tidelog(bootstrap, "produce", made, given=b"".join(b"%d\n" % number for number in range(10)))
    out = tidelog(bootstrap, "consume", made, "--from", start_text, "--exit-at-end")
    assert out == b"".join(b"%d\n" % number for number in range(expected, 10))


def test_a_topic_that_is_missing_is_not_made_by_accident(bootstrap: str, topic: str) -> None:
    told = tidelog(bootstrap, "produce", topic, given=b"x\n", code=1)
    assert f"create it with `tidelog topic create {topic}`".encode() in told or b"did you mean" in told


def test_a_reader_that_goes_away_ends_it_quietly(bootstrap: str, made: str) -> None:
    tidelog(bootstrap, "produce", made, given=b"0123456789\n" * 100_000)
    process = start(bootstrap, "consume", made, "--from", "earliest", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0123456789\n"
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_an_interrupt_ends_it_quietly(bootstrap: str, made: str) -> None:
    tidelog(bootstrap, "produce", made, given=b"here\n")
    process = start(bootstrap, "consume", made, "--from", "earliest", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_an_interrupt_ends_a_producer_that_waits_for_the_keyboard(bootstrap: str, made: str) -> None:
    process = start(
        bootstrap,
        "produce",
        made,
        "--linger-ms",
        "0",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"typed\n")
    process.stdin.flush()
    assert tidelog(bootstrap, "consume", made, "--from", "earliest", "--max", "1") == b"typed\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.communicate()
