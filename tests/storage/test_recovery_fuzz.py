"""Recovery of files that somebody or something has damaged: it always opens, and keeps what lies before the damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storage_cases import TOPIC_ID, TP, Disk, append, append_values, batch_of, produce, read_bytes

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.record import iter_batches
from tidelog.storage.checkpoints import CheckpointDamaged, parse_offsets
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log

CONFIG = TopicConfig(segment_bytes=1500, index_interval_bytes=200)
FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


class Stored(NamedTuple):
    """A batch, and where in which file it lies."""

    base_offset: int
    segment: int
    start: int
    data: bytes


class Damaged(NamedTuple):
    path: str
    start: int
    """The first byte that differs."""


def build(*, flush_after: int, checkpoint: bool, delete_before: int) -> tuple[Disk, ForgetfulFilesystem, list[Stored]]:
    """Some segments with plain and idempotent batches, left behind by a process that was killed."""
    fs = ForgetfulFilesystem()
    disk = Disk(fs, "/data")
    store = disk.open_store(CONFIG)
    log = store.create(TP, TOPIC_ID, CONFIG)
    for at in range(24):
        if at % 3 == 2:
            produce(log, at // 3 * 2, 2)
        else:
            append_values(log, b"%d " % at + b"x" * (37 * at % 300), leader_epoch=at // 10)
        if at == flush_after:
            log.flush()
            log.advance_log_start(min(delete_before, log.log_end_offset))
            if checkpoint:
                store.write_checkpoints({TP: log.flushed_offset})
    stored = stored_batches(log)
    fs.crash(Forget.NOTHING)
    return disk, fs, stored


def stored_batches(log: Log) -> list[Stored]:
    found: list[Stored] = []
    for segment in log.segments:
        start = 0
        for header, batch in iter_batches(segment.file.get().pread(segment.size, 0)):
            found.append(Stored(header.base_offset, segment.base_offset, start, bytes(batch)))
            start += header.size
    return found


@st.composite
def damage(draw: st.DrawFn, fs: ForgetfulFilesystem, paths: list[str]) -> Damaged:
    path = draw(st.sampled_from(paths))
    file = fs.open(path)
    content = bytearray(file.pread(file.size(), 0))
    kind = draw(st.sampled_from(["flip", "cut", "extend", "zeros", "garbage", "remove"]))
    at = draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "remove":
        fs.remove(path)
        return Damaged(path, 0)
    if kind == "flip" and content:
        content[at] ^= 1 << draw(st.integers(0, 7))
    elif kind == "cut":
        del content[at:]
    elif kind == "zeros":
        length = draw(st.integers(1, 600))
        content[at : at + length] = bytes(len(content[at : at + length]))
    elif kind == "garbage":
        content[at:] = draw(st.binary(max_size=600))
    else:
        at = len(content)
        content += draw(st.binary(min_size=1, max_size=200))
    file.truncate(0)
    file.pwrite(content, 0)
    return Damaged(path, at)


def survivors(stored: list[Stored], damages: list[Damaged]) -> list[Stored]:
    """The batches that lie before every damage to a log file."""
    first_bad = len(stored)
    for path, start in damages:
        if not path.endswith(".log"):
            continue
        segment = int(path.rpartition("/")[2].removesuffix(".log"))
        for at, each in enumerate(stored):
            if each.segment > segment or (each.segment == segment and each.start + len(each.data) > start):
                first_bad = min(first_bad, at)
                break
    return stored[:first_bad]


def readable(log: Log) -> list[bytes]:
    """All batches up to the end, or up to the first one that cannot be read."""
    found: list[bytes] = []
    at = log.log_start_offset
    try:
        while data := read_bytes(log, at, 400):
            before = at
            for header, batch in iter_batches(data):
                found.append(bytes(batch))
                at = header.next_offset
            if at <= before:
                break  # a damaged header claims another size or offsets: reading would go in circles
    except BrokerError as error:
        # A damaged header can also claim offsets that lead nowhere.
        expected = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE)
        assert error.code in expected  # noqa: PT017 - it may also succeed
    return found


def is_misleading(fs: ForgetfulFilesystem, path: str, original: bytes) -> bool:
    """Whether a text file was changed into another valid one: nothing can tell that it is wrong."""
    if not path.endswith("log-start-offset-checkpoint") or not fs.exists(path):
        return False
    file = fs.open(path)
    try:
        return parse_offsets(file.pread(file.size(), 0)) != parse_offsets(original)
    except CheckpointDamaged:
        return False


@FUZZ
@given(st.data())
def test_recovery_keeps_what_lies_before_the_damage(data: st.DataObject) -> None:
    flush_after = data.draw(st.integers(0, 23), "flush after")
    delete_before = data.draw(st.sampled_from([0, 0, 3, 11]), "delete before")
    disk, fs, stored = build(
        flush_after=flush_after, checkpoint=data.draw(st.booleans(), "checkpoint"), delete_before=delete_before
    )
    paths = [f"{disk.partition}/{name}" for name in disk.files()]
    paths += [f"/data/{name}" for name in CHECKPOINTS if fs.exists(f"/data/{name}")]
    starts_path = "/data/log-start-offset-checkpoint"
    starts = fs.open(starts_path).pread(999, 0) if fs.exists(starts_path) else b""
    damages: list[Damaged] = []
    for _ in range(data.draw(st.integers(1, 3), "damages")):
        left = [path for path in paths if fs.exists(path)]
        damages.append(data.draw(damage(fs, left)))
    fs.crash(Forget.NOTHING)  # the damage is there to stay

    store = disk.open_store(CONFIG)
    log = store.logs[TP]
    assert log.failure is None
    expected = survivors(stored, damages)
    if not is_misleading(fs, starts_path, starts):
        kept = readable(log)
        wanted = [each.data for each in expected if _end(each) > log.log_start_offset]
        assert kept[: len(wanted)] == wanted
        assert log.log_end_offset >= (_end(expected[-1]) if expected else 0)
    goes_on_working(disk, fs, log)


def goes_on_working(disk: Disk, fs: ForgetfulFilesystem, log: Log) -> None:
    """What is appended and flushed now survives the next crash, behind whatever was recovered."""
    before = log.log_end_offset
    batch = batch_of([b"after the damage"])
    log.config = CONFIG
    append(log, batch, leader_epoch=log.last_leader_epoch + 1 if log.last_leader_epoch < 2**31 - 1 else 0)
    log.flush()
    fs.crash(Forget.EVERYTHING)
    again = disk.open_log(CONFIG)
    assert again.log_end_offset == before + 1
    assert read_bytes(again, before) == bytes(batch)


def _end(stored: Stored) -> int:
    (header, _), *_ = iter_batches(stored.data)
    return header.next_offset
