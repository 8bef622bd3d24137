from __future__ import annotations

import json
from struct import pack
from typing import TYPE_CHECKING

import pytest

from tidelog.cli.running import run
from tidelog.cli.segment_files import (
    dump_aborted_index,
    dump_log,
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    find_files,
)
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.header import BatchHeader, peek
from tidelog.records.record import Record
from tidelog.storage import snapshots
from tidelog.storage.aborted_index import AbortedEntry
from tidelog.storage.aborted_index import pack as pack_aborted
from tidelog.storage.producers import Producers

if TYPE_CHECKING:
    from pathlib import Path


def batch(first: int, count: int, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytes:
    records = [Record(first + at, 1000 + first + at, b"k%d" % at, b"v%d" % at, (("h", b"x"),)) for at in range(count)]
    identity = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": first}
    return bytes(build_batch(records, codec=codec, **identity))  # type: ignore[arg-type]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    return directory


def segment(partition: Path, *batches: bytes, base: int = 0) -> Path:
    path = partition / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def test_batches_are_shown_with_their_places(partition: Path) -> None:
    batches = [batch(0, 3), batch(3, 2, Codec.ZSTD, producer_id=9)]
    first, second = dump_log(segment(partition, *batches), with_records=False)
    assert (first.position, second.position) == (0, len(batches[0]))
    assert (first.fields["base_offset"], first.fields["last_offset"], first.fields["codec"]) == (0, 2, "none")
    assert (second.fields["records"], second.fields["codec"], second.fields["producer_id"]) == (2, "zstd", 9)
    assert first.damage is second.damage is None
    assert first.records == []


def test_records_are_shown_on_request(partition: Path) -> None:
    (finding,) = dump_log(segment(partition, batch(7, 2, Codec.LZ4)), with_records=True)
    assert [(record.offset, record.key, record.value) for record in finding.records] == [
        (7, b"k0", b"v0"),
        (8, b"k1", b"v1"),
    ]


def test_a_changed_byte_is_found_and_the_rest_still_shown(partition: Path) -> None:
    damaged = bytearray(batch(3, 2))
    damaged[-1] ^= 1
    findings = list(dump_log(segment(partition, batch(0, 3), bytes(damaged), batch(5, 1)), with_records=True))
    assert [finding.damage is not None for finding in findings] == [False, True, False]
    assert findings[1].damage is not None
    assert "checksum" in findings[1].damage
    assert findings[1].records == []


def test_a_torn_tail_is_found_with_its_position(partition: Path) -> None:
    whole = batch(0, 3)
    good, bad = dump_log(segment(partition, whole, batch(3, 2)[:-1]), with_records=False)
    assert good.damage is None
    assert (bad.kind, bad.position) == ("damage", len(whole))


def test_an_offset_before_the_segment_is_damage(partition: Path) -> None:
    (finding,) = dump_log(segment(partition, batch(3, 2), base=10), with_records=False)
    assert finding.damage == "offset 3 where 10 or more should follow"


def test_an_index_is_held_against_its_log(partition: Path) -> None:
    first = batch(10, 3)
    segment(partition, first, batch(13, 2), base=10)
    index = partition / f"{10:020d}.index"
    index.write_bytes(pack(">iiii", 2, 0, 4, len(first)))
    assert [(f.fields["offset"], f.fields["position"], f.damage) for f in dump_offset_index(index)] == [
        (12, 0, None),
        (14, len(first), None),
    ]
    index.write_bytes(pack(">iiii", 2, 7, 3, len(first)))
    astray, wrong = dump_offset_index(index)
    assert astray.damage is not None
    assert "no batch begins" in astray.damage
    assert wrong.damage == "the batch there ends with offset 14"


def test_index_entries_must_rise_and_be_whole(partition: Path) -> None:
    index = partition / f"{0:020d}.index"
    index.write_bytes(pack(">iiii", 5, 100, 4, 200) + b"\x01")
    damage = [finding.damage for finding in dump_offset_index(index)]
    assert damage == [None, "entries must rise", "1 bytes are no whole entry"]
    index.write_bytes(pack(">ii", 5, -1))
    segment(partition, batch(0, 1))
    assert [finding.damage for finding in dump_offset_index(index)] == ["it points before the log"]


def test_zeros_at_the_end_of_an_index_are_room_not_entries(partition: Path) -> None:
    index = partition / f"{0:020d}.index"
    index.write_bytes(pack(">ii", 5, 256) + bytes(80))
    assert len(list(dump_offset_index(index))) == 1


def test_a_time_index_is_shown(partition: Path) -> None:
    index = partition / f"{100:020d}.timeindex"
    index.write_bytes(pack(">qiqiqi", 1000, 5, 2000, 9, 1500, 12))
    findings = list(dump_time_index(index))
    assert [finding.fields for finding in findings[:2]] == [
        {"timestamp": 1000, "offset": 105},
        {"timestamp": 2000, "offset": 109},
    ]
    assert [finding.damage for finding in findings] == [None, None, "entries must rise"]


def test_aborted_transactions_are_shown(partition: Path) -> None:
    index = partition / f"{100:020d}.txnindex"
    entry = AbortedEntry(producer_id=7, first_offset=101, last_offset=105, last_stable_offset=103)
    index.write_bytes(pack_aborted([entry]) + b"torn")
    (damage,) = dump_aborted_index(index)
    assert damage.damage is not None
    index.write_bytes(pack_aborted([entry]) + bytes(34))
    shown, damage = dump_aborted_index(index)
    assert shown.fields == {"producer_id": 7, "first_offset": 101, "last_offset": 105, "last_stable_offset": 103}
    assert (damage.position, damage.damage is None) == (34, False)


def test_a_producer_snapshot_is_shown(partition: Path) -> None:
    producers = Producers()
    header: BatchHeader = peek(batch(4, 2, producer_id=9))
    producers.record(header, 4, 5000)
    path = partition / f"{6:020d}.snapshot"
    path.write_bytes(snapshots.encode(producers))
    (finding,) = dump_snapshot(path)
    assert finding.fields["producer_id"] == 9
    assert (finding.fields["last_sequence"], finding.fields["last_offset"]) == (5, 5)
    path.write_bytes(path.read_bytes()[:-1])
    (finding,) = dump_snapshot(path)
    assert finding.damage is not None


def test_a_directory_is_searched_for_log_files(partition: Path) -> None:
    segment(partition, batch(0, 1))
    for name in ("leader-epoch-checkpoint", "notes.log", "00000000000000000000.timeindex"):
        (partition / name).touch()
    assert [path.name for path in find_files(partition.parent)] == [
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
    ]


def test_the_command_prints_for_people(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(partition, batch(0, 2))
    assert run(["log", "dump", str(path), "--records"]) == 0
    out = capsys.readouterr().out
    assert "base_offset=0  last_offset=1  records=2" in out
    assert "offset=1  timestamp=1001  key='k1'  value='v1'  'h': 'x'" in out


def test_the_command_prints_for_programs(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment(partition, batch(0, 2), batch(2, 1))
    assert run(["log", "dump", str(partition), "--records", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["kind"], first["records"], first["damage"]) == ("batch", 2, None)
    assert second["content"] == [{"offset": 2, "timestamp": 1002, "key": "k0", "value": "v0", "headers": [["h", "x"]]}]


def test_damage_is_exit_code_1(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(partition, batch(0, 2), batch(2, 1)[:50])
    assert run(["log", "dump", str(path), "--damage-only"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert "DAMAGED" in captured.out
    assert captured.err == "tidelog: damage in 1 place\n"


def test_what_cannot_be_dumped_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.touch()
    assert run(["log", "dump", str(other)]) == 2
    assert run(["log", "dump", str(tmp_path)]) == 1
    assert "holds no log files" in capsys.readouterr().err
