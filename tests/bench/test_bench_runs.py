"""The harness works from end to end. What it measures here means nothing, and nothing is asserted about it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from bench import __main__ as command
from bench import reference_broker, wire_rows
from bench.checks import NotDoneError, check_produced
from bench.frames import produce_frame
from bench.plan import Plan
from bench.reference_broker import NoReferenceError, ReferenceBroker, compiled
from bench.work_dirs import CACHE

if TYPE_CHECKING:
    from pathlib import Path

TINY = Plan(trials=1, seconds=0.1, bytes=4 << 20, client_bytes=1 << 20, partitions=3)
NOW_MS = 1_700_000_000_000


@pytest.fixture
def program() -> Path:
    return compiled(CACHE)


def test_a_short_run_shows_a_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SHORT", TINY)
    file = tmp_path / "rows.json"
    names = [name for name in command.GROUPS if name != "kafka"]
    only = [argument for name in names for argument in ("--only", name)]
    assert command.main(["--short", "--json", str(file), *only]) == 0
    rows = json.loads(file.read_text())["rows"]
    printed = capsys.readouterr().out
    assert len(rows) >= 15
    assert all(row["measured"] > 0 for row in rows)
    assert all(row["name"] in printed for row in rows)
    assert {row["peer"] for row in rows} == {"", "C", "loopback"}
    assert all(row["ratio"] > 0 for row in rows if row["peer"])


def test_without_a_compiler_the_ratios_say_why_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(NoReferenceError, match="install cc"):
        compiled(tmp_path)
    monkeypatch.setattr("bench.peers.CACHE", tmp_path)
    (row,) = wire_rows.tiny(TINY)
    assert row.measured > 0
    assert row.ratio is None
    assert "install cc" in row.note


def test_a_source_that_does_not_compile_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "broker.c"
    source.write_text("int main(void) { return missing; }\n")
    monkeypatch.setattr(reference_broker, "SOURCE", source)
    with pytest.raises(NoReferenceError, match="does not compile"):
        compiled(tmp_path)


def test_a_lost_batch_is_noticed(program: Path, tmp_path: Path) -> None:
    one = produce_frame("t", 4096, NOW_MS)
    with ReferenceBroker(program, tmp_path / "log") as broker:
        check_produced(broker.port, one.frame, records_before=0)
        check_produced(broker.port, one.frame, records_before=one.records)
        with pytest.raises(NotDoneError, match=f"behind {one.records} records"):
            check_produced(broker.port, one.frame, records_before=one.records)


def test_the_c_peer_refuses_a_damaged_batch(program: Path, tmp_path: Path) -> None:
    """A peer that skipped the checksum would be no fair comparison."""
    damaged = bytearray(produce_frame("t", 4096, NOW_MS).frame)
    damaged[-10] ^= 1
    with ReferenceBroker(program, tmp_path / "log") as broker, pytest.raises(Exception, match="closed the connection"):
        check_produced(broker.port, bytes(damaged), records_before=0)
