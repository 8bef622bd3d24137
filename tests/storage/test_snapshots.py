"""Producer snapshots: Kafka's bytes, our window of five, and nothing believed without its checksum."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from storage_cases import NOW_MS, Disk, batch_of

from tidelog.records.header import peek
from tidelog.storage.producers import Producer, Producers
from tidelog.storage.snapshot_files import SnapshotFiles
from tidelog.storage.snapshots import SnapshotDamaged, decode, encode

ENTRY = struct.Struct(">qhiqiqiq")


def record(producers: Producers, producer_id: int, epoch: int, sequence: int, count: int, offset: int) -> None:
    batch = batch_of([b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    producers.record(peek(batch), offset, NOW_MS + offset)


def state(producers: Producers) -> dict[int, tuple[object, ...]]:
    return {
        each: (
            producer.epoch,
            producer.window,
            producer.last_seen_ms,
            producer.coordinator_epoch,
            producer.transaction_first_offset,
        )
        for each, producer in producers
    }


def test_the_bytes_are_kafkas() -> None:
    producers = Producers()
    record(producers, 42, 3, 10, 4, 100)
    data = encode(producers)
    version, crc = struct.unpack_from(">hI", data)
    assert version == 1
    assert crc == crc32c(data[6:])
    assert struct.unpack_from(">i", data, 6) == (1,)
    # producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction start
    assert ENTRY.unpack_from(data, 10) == (42, 3, 13, 103, 3, NOW_MS + 100, -1, -1)
    assert len(data) == 10 + ENTRY.size


def test_the_last_entry_of_a_producer_is_its_newest_batch() -> None:
    """Kafka's reader keeps the last entry of a producer id, so that must be the one it would have written."""
    producers = Producers()
    for at in range(7):
        record(producers, 42, 3, at, 1, at)
    data = encode(producers)
    entries = list(ENTRY.iter_unpack(data[10:]))
    assert [entry[2] for entry in entries] == [2, 3, 4, 5, 6]
    assert {entry[0] for entry in entries} == {42}


@given(
    st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(1, 9)),
        max_size=30,
    )
)
def test_what_is_written_is_read_back(batches: list[tuple[int, int, int, int]]) -> None:
    producers = Producers()
    offset = 0
    for producer_id, epoch, sequence, count in batches:
        record(producers, producer_id % 4, epoch % 2, sequence, count, offset)
        offset += count
    assert state(decode(encode(producers))) == state(producers)


def test_a_producer_known_by_its_epoch_alone_is_kept() -> None:
    producers = Producers()
    fenced = Producer(5)
    fenced.last_seen_ms = NOW_MS
    fenced.coordinator_epoch = 2
    producers.restore(9, fenced)
    assert state(decode(encode(producers))) == {9: (5, (), NOW_MS, 2, -1)}


@given(st.data())
def test_no_damage_goes_unnoticed(data: st.DataObject) -> None:
    producers = Producers()
    for at in range(3):
        record(producers, at, 0, 0, 2, at)
    good = encode(producers)
    bad = bytearray(good)
    if data.draw(st.booleans()):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del bad[data.draw(st.integers(0, len(bad) - 1)) :]
    with pytest.raises(SnapshotDamaged):
        decode(bytes(bad))


@given(st.binary(max_size=200))
def test_garbage_is_damage(data: bytes) -> None:
    with pytest.raises(SnapshotDamaged):
        decode(data)


def test_a_right_checksum_over_a_wrong_count_is_damage() -> None:
    body = struct.pack(">i", 5) + bytes(ENTRY.size)
    with pytest.raises(SnapshotDamaged):
        decode(struct.pack(">hI", 1, crc32c(body)) + body)


# -- the files ----------------------------------------------------------------------------------------------------


def files(disk: Disk) -> SnapshotFiles:
    disk.open_log()
    return SnapshotFiles(disk.fs, disk.partition, [])


def test_the_newest_sound_one_that_is_not_too_new_is_loaded(disk: Disk) -> None:
    snapshots = files(disk)
    for offset in (5, 10, 15):
        producers = Producers()
        record(producers, offset, 0, 0, 1, offset)
        snapshots.write(offset, producers)
    assert disk.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (5, 10, 15)]
    assert snapshots.latest == 15
    loaded = snapshots.load(14)
    assert loaded is not None
    assert loaded.offset == 10
    assert [each for each, _ in loaded.producers] == [10]
    disk.overwrite(f"{10:020d}.snapshot", b"torn")
    loaded = snapshots.load(14)
    assert loaded is not None
    assert loaded.offset == 5
    assert snapshots.offsets == (5, 15), "the damaged one is gone"
    assert snapshots.load(4) is None


def test_only_segment_starts_and_the_newest_are_kept(disk: Disk) -> None:
    snapshots = files(disk)
    for offset in (3, 5, 8, 10, 12):
        snapshots.write(offset, Producers())
    snapshots.prune({5, 10})
    assert list(snapshots.offsets) == [5, 10, 12]
    snapshots.remove_after(5)
    assert list(snapshots.offsets) == [5]
    assert disk.files(".snapshot") == [f"{5:020d}.snapshot"]
    disk.fs.remove(f"{disk.partition}/{5:020d}.snapshot")
    assert snapshots.load(9) is None, "somebody took it away"
    assert snapshots.latest == -1


def test_a_longer_older_one_is_replaced_completely(disk: Disk) -> None:
    snapshots = files(disk)
    many = Producers()
    for at in range(5):
        record(many, at, 0, 0, 1, at)
    snapshots.write(7, many)
    snapshots.write(7, Producers())
    loaded = snapshots.load(7)
    assert loaded is not None
    assert len(loaded.producers) == 0
