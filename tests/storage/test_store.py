"""The store: data directories, their lock and identity, partitions that come and go, checkpoints."""

from __future__ import annotations

import errno
import logging

import pytest
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk, append_values, read_values

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.storage.data_dir import Meta, parse_directory
from tidelog.storage.errors import StoreError
from tidelog.storage.store import STRAY_KEPT_MS, LogStore
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem
from tidelog.types import ZERO_TOPIC_ID, TopicId, TopicPartition, format_topic_id

CONFIG = TopicConfig()


def two_dirs(disk: Disk) -> LogStore:
    return LogStore([f"{disk.root}/a", f"{disk.root}/b"], disk.fs, disk.clock, open_files_max=10, recovery_threads=2)


def names(disk: Disk, directory: str) -> set[str]:
    return {each.name for each in disk.fs.scan(directory)}


# -- directories --------------------------------------------------------------------------------------------------


def test_a_store_makes_its_directories(disk: Disk) -> None:
    store = two_dirs(disk)
    store.lock()
    store.open(lambda _: CONFIG)
    assert store.directories == [f"{disk.root}/a", f"{disk.root}/b"]
    assert store.logs == {}
    space = store.disk_usage(store.directories[0])
    assert space.usable_bytes <= space.total_bytes


def test_a_directory_belongs_to_one_broker_at_a_time(disk: Disk) -> None:
    first, second = two_dirs(disk), two_dirs(disk)
    first.lock()
    with pytest.raises(StoreError, match="in use by another broker"):
        second.lock()
    first.open(lambda _: CONFIG)
    first.close()
    second.lock()


def test_a_store_that_gets_only_some_locks_keeps_none(disk: Disk) -> None:
    holder = LogStore([f"{disk.root}/b"], disk.fs, disk.clock, open_files_max=10, recovery_threads=1)
    holder.lock()
    with pytest.raises(StoreError):
        two_dirs(disk).lock()
    LogStore([f"{disk.root}/a"], disk.fs, disk.clock, open_files_max=10, recovery_threads=1).lock()


def test_a_directory_that_cannot_be_made_is_explained(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    memory.fail("make_dir", errno.EACCES)
    with pytest.raises(StoreError, match="cannot use /data as a log directory"):
        forgetful.open_store()


def test_directories_remember_whose_they_are(disk: Disk) -> None:
    store = two_dirs(disk)
    store.lock()
    assert store.read_meta() is None
    store.claim(3, "cluster-x")
    store.claim(3, "cluster-x")
    assert store.read_meta() == Meta(3, "cluster-x")
    content = disk.fs.open(f"{disk.root}/a/meta.properties").pread(999, 0)
    assert content == b"broker.id=3\ncluster.id=cluster-x\nversion=0\n"
    with pytest.raises(StoreError, match=r"says broker\.id=3"):
        store.claim(4, "cluster-x")
    with pytest.raises(StoreError, match="cluster-x"):
        store.claim(3, "another")


@pytest.mark.parametrize("content", [b"nonsense", b"broker.id=three\ncluster.id=x\n", b"broker.id=3\n", b"\xff"])
def test_an_unreadable_identity_is_explained(disk: Disk, content: bytes) -> None:
    store = disk.open_store()
    disk.fs.open(f"{disk.root}/meta.properties", create=True).pwrite(content, 0)
    with pytest.raises(StoreError, match=r"meta\.properties cannot be read"):
        store.claim(3, "x")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("with-dash-12", TopicPartition("with-dash", 12)),
        ("a.b_c-7", TopicPartition("a.b_c", 7)),
        ("orders", None),
        ("orders-", None),
        ("-1", None),
        ("orders-01", None),
        ("orders-1x", None),
        ("orders-0.abc-delete", None),
        ("orders-0.abc-future", None),
        (".-0", None),
        ("..-0", None),
        ("lost+found", None),
        ("ordérs-0", None),
        ("x" * 250 + "-0", None),
        ("orders-99999999999", None),
    ],
)
def test_names_of_partition_directories(name: str, expected: TopicPartition | None) -> None:
    assert parse_directory(name) == expected


def test_foreign_directories_are_reported_and_left_alone(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.open_store().close()
    disk.fs.make_dir(f"{disk.root}/lost+found")
    disk.fs.make_dir(f"{disk.root}/orders-0.aaaa-delete")
    disk.fs.open(f"{disk.root}/orders-0.aaaa-delete/x", create=True)
    with caplog.at_level(logging.WARNING):
        store = disk.open_store()
    assert store.logs == {}
    assert "lost+found is not a partition's directory" in caplog.text
    assert "lost+found" in names(disk, disk.root)
    assert "orders-0.aaaa-delete" not in names(disk, disk.root), "remains of a deletion are removed"


def test_a_partition_in_two_places_is_for_a_person_to_decide(disk: Disk) -> None:
    store = two_dirs(disk)
    store.lock()
    for directory in store.directories:
        disk.fs.make_dir(f"{directory}/orders-0")
    with pytest.raises(StoreError, match="lies in both"):
        store.open(lambda _: CONFIG)


# -- partitions ---------------------------------------------------------------------------------------------------


def test_new_partitions_go_where_the_fewest_are(disk: Disk) -> None:
    store = two_dirs(disk)
    store.lock()
    store.open(lambda _: CONFIG)
    for at in range(5):
        store.create(TopicPartition("t", at), TOPIC_ID, CONFIG)
    homes = [store.directory_of(TopicPartition("t", at)).rpartition("/")[2] for at in range(5)]
    assert homes == ["a", "b", "a", "b", "a"]
    store.delete(TopicPartition("t", 0))
    store.delete(TopicPartition("t", 2))
    store.create(TopicPartition("u", 0), TOPIC_ID, CONFIG)
    assert store.directory_of(TopicPartition("u", 0)).endswith("a")
    store.close()
    again = two_dirs(disk)
    again.lock()
    again.open(lambda _: CONFIG)
    assert sorted(again.logs) == [TopicPartition("t", 1), TopicPartition("t", 3), TopicPartition("t", 4), ("u", 0)]
    assert again.directory_of(TopicPartition("t", 1)).endswith("b")


def test_each_topic_gets_its_own_settings(disk: Disk) -> None:
    store = disk.open_store()
    store.create(TopicPartition("a", 0), TOPIC_ID, CONFIG)
    store.create(TopicPartition("b", 0), TOPIC_ID, CONFIG)
    store.close()
    again = LogStore([disk.root], disk.fs, disk.clock, open_files_max=10, recovery_threads=1)
    again.lock()
    again.open(lambda topic: TopicConfig(retention_bytes=5 if topic == "a" else 6))
    assert {each.topic: log.config.retention_bytes for each, log in again.logs.items()} == {"a": 5, "b": 6}


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig(file_delete_delay_ms=1000))
    append_values(log, b"a")
    part = log.read(0, 1000, 1000, True)
    assert part is not None
    store.delete(TP)
    assert TP not in store.logs
    assert "orders-0" not in names(disk, disk.root)
    (doomed,) = [name for name in names(disk, disk.root) if name.endswith("-delete")]
    assert doomed.startswith("orders-0.")
    with pytest.raises(BrokerError):
        append_values(log, b"b")
    store.create(TP, TOPIC_ID, CONFIG)
    assert store.run_maintenance(NOW_MS + 999) == 0
    assert store.run_maintenance(NOW_MS + 1000) == 1
    assert doomed not in names(disk, disk.root)
    assert part.slice.read(), "who was reading may finish"


@pytest.mark.parametrize("forget", [Forget.NOTHING, Forget.EVERYTHING])
def test_a_partition_made_anew_does_not_inherit_what_is_known_of_the_old_one(forget: Forget) -> None:
    fs = ForgetfulFilesystem()
    disk = Disk(fs, "/data")
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    for _ in range(5):
        append_values(log, b"old")
    log.flush()
    log.advance_log_start(4)
    log.clean_offset = 4
    late = store.prepare_checkpoints({TP: 5})
    store.write_checkpoints({TP: 5})
    store.delete(TP)
    again = store.create(TP, TopicId(bytes(16)), TopicConfig())
    late.write()
    append_values(again, b"new")
    again.flush()
    fs.crash(forget)
    found = disk.open_store()
    assert read_values(found.logs[TP]) == [b"new"]
    assert found.logs[TP].clean_offset == 0
    assert not found.high_watermarks


def test_a_partition_that_cannot_be_deleted_is_still_there() -> None:
    fs = ForgetfulFilesystem()
    store = Disk(fs, "/data").open_store()
    append_values(store.create(TP, TOPIC_ID, CONFIG), b"a")
    for part_with in (store.delete, store.stray):
        fs.fail("rename", 5)
        with pytest.raises(OSError, match="Input/output"):
            part_with(TP)
        assert read_values(store.logs[TP]) == [b"a"]
    store.delete(TP)
    assert TP not in store.logs


def test_a_stray_partition_is_kept_for_a_day_whatever_happens(disk: Disk) -> None:
    store = disk.open_store()
    append_values(store.create(TP, TOPIC_ID, CONFIG), b"a")
    path = store.stray(TP)
    assert TP not in store.logs
    name = path.removeprefix(f"{disk.root}/")
    assert name.startswith("orders-0.")
    assert name.endswith("-stray")
    store.close()
    store = disk.open_store()
    assert store.logs == {}
    assert store.run_maintenance(NOW_MS + STRAY_KEPT_MS - 1) == 0
    assert name in names(disk, disk.root)
    assert store.run_maintenance(NOW_MS + STRAY_KEPT_MS) == 1
    assert name not in names(disk, disk.root)


def test_even_the_longest_name_can_be_deleted(disk: Disk) -> None:
    store = disk.open_store()
    longest = TopicPartition("x" * 249, 0)
    store.create(longest, TOPIC_ID, CONFIG)
    store.delete(longest)
    (doomed,) = [name for name in names(disk, disk.root) if name.endswith("-delete")]
    assert len(doomed) == 255


def test_a_partition_set_aside_keeps_its_files_and_its_checkpoints(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, CONFIG)
    append_values(log, b"a", b"b")
    log.flush()
    log.advance_log_start(1)
    store.write_checkpoints()
    store.set_aside(TP)
    assert TP not in store.logs
    with pytest.raises(BrokerError) as refused:
        store.create(TP, TOPIC_ID, CONFIG)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    store.close()
    reopened = disk.open_log()
    assert reopened.log_start_offset == 1
    assert read_values(reopened) == [b"b"]


def test_one_unreadable_partition_does_not_stop_the_others(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store()
    for at in range(3):
        append_values(store.create(TopicPartition("t", at), TOPIC_ID, CONFIG), b"a")
    store.close()
    memory.fail("scan", errno.EIO, after=2)  # after the data directory and the first partition
    again = forgetful.open_store()
    assert sorted(each.partition for each in again.logs) == [0, 2]
    with pytest.raises(BrokerError):
        again.create(TopicPartition("t", 1), TOPIC_ID, CONFIG)
    again.close()
    assert len(forgetful.open_store().logs) == 3


def test_a_full_disk_refuses_a_new_partition(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store()
    memory.fail("make_dir", errno.ENOSPC)
    with pytest.raises(BrokerError) as refused:
        store.create(TP, TOPIC_ID, CONFIG)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.create(TP, TOPIC_ID, CONFIG) is store.logs[TP]


@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_partition_that_was_made_half_can_be_made_again(
    forgetful: Disk, memory: ForgetfulFilesystem, operation: str
) -> None:
    store = forgetful.open_store()
    memory.fail(operation, errno.ENOSPC)
    with pytest.raises(BrokerError):
        store.create(TP, TOPIC_ID, CONFIG)
    append_values(store.create(TP, TOPIC_ID, CONFIG), b"a")
    store.close()
    assert forgetful.open_log().topic_id == TOPIC_ID


# -- checkpoints --------------------------------------------------------------------------------------------------


def checkpoint(disk: Disk, name: str) -> bytes:
    return disk.fs.open(f"{disk.root}/{name}").pread(9999, 0)


def test_checkpoints_are_kafkas(disk: Disk) -> None:
    store = disk.open_store()
    for topic, count in (("a", 3), ("b", 0)):
        log = store.create(TopicPartition(topic, 0), TOPIC_ID, CONFIG)
        if count:
            append_values(log, *[b"v"] * count)
            log.flush()
            log.advance_log_start(2)
    append_values(store.logs[TopicPartition("a", 0)], b"not flushed")
    store.write_checkpoints({TopicPartition("a", 0): 3, TopicPartition("gone", 0): 9})
    assert checkpoint(disk, "recovery-point-offset-checkpoint") == b"0\n2\na 0 3\nb 0 0\n"
    assert checkpoint(disk, "log-start-offset-checkpoint") == b"0\n1\na 0 2\n"
    assert checkpoint(disk, "replication-offset-checkpoint") == b"0\n1\na 0 3\n"
    store.close({TopicPartition("a", 0): 4})
    again = disk.open_store()
    assert again.high_watermarks == {TopicPartition("a", 0): 4}


def test_unchanged_checkpoints_are_not_written_again(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store()
    append_values(store.create(TP, TOPIC_ID, CONFIG), b"a")
    store.write_checkpoints()
    before = memory.calls["sync"]
    store.write_checkpoints()
    assert memory.calls["sync"] == before


def test_checkpoints_are_written_in_any_thread_but_not_after_they_went_stale(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, CONFIG)
    append_values(log, b"a", b"b")
    log.flush()
    stale = store.prepare_checkpoints()
    log.advance_log_start(1)
    stale.write()
    assert checkpoint(disk, "log-start-offset-checkpoint") == b"0\n1\norders 0 1\n"


def test_a_store_that_could_not_flush_does_not_call_its_stop_clean(
    forgetful: Disk, memory: ForgetfulFilesystem
) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, CONFIG)
    append_values(log, b"a")
    log.flush()
    append_values(log, b"b")
    memory.fail("sync", errno.EIO)
    store.close()
    assert not memory.exists("/data/.kafka_cleanshutdown")
    memory.crash(Forget.EVERYTHING)
    assert read_values(forgetful.open_log()) == [b"a"]


def test_a_damaged_checkpoint_costs_a_longer_recovery_and_nothing_else(
    forgetful: Disk, memory: ForgetfulFilesystem, caplog: pytest.LogCaptureFixture
) -> None:
    store = forgetful.open_store()
    append_values(store.create(TP, TOPIC_ID, CONFIG), b"a")
    store.close()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        memory.open(f"/data/{name}").pwrite(b"nonsense", 0)
    assert read_values(forgetful.open_log()) == [b"a"]
    assert "is damaged and will be written anew" in caplog.text


def test_checkpoints_prepared_before_a_clean_stop_are_not_written_after_it(forgetful: Disk) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, CONFIG)
    append_values(log, b"a")
    late = store.prepare_checkpoints({TP: 0})
    append_values(log, b"b", b"c")
    store.close({TP: 3})
    late.write()
    again = forgetful.open_store()
    assert read_values(again.logs[TP]) == [b"a", b"b", b"c"]
    assert again.logs[TP].flushed_offset == 3
    assert again.high_watermarks[TP] == 3


def test_many_partitions_open_with_few_files(disk: Disk) -> None:
    store = disk.open_store(open_files_max=5)
    for at in range(60):
        append_values(store.create(TopicPartition("t", at), TOPIC_ID, CONFIG), b"%d" % at)
    store.close()
    again = disk.open_store(open_files_max=5, recovery_threads=3)
    assert len(again.logs) == 60
    assert len(again._room.files) == 0, "nothing is open before somebody asks"
    for each, log in again.logs.items():
        assert read_values(log) == [b"%d" % each.partition]
    assert len(again._room.files) <= 5


def test_a_log_that_does_not_say_whose_it_is_can_be_adopted(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    append_values(log, b"v")
    log.flush()
    disk.overwrite("partition.metadata", b"")
    store.close()
    log = disk.open_log()
    assert log.topic_id == ZERO_TOPIC_ID
    log.adopt(TOPIC_ID)
    log.flush()
    assert read_values(log) == [b"v"]
    assert log.topic_id == TOPIC_ID
    assert format_topic_id(TOPIC_ID) in disk.content("partition.metadata").decode()
