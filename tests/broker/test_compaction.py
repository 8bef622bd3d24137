"""Compacted topics on a real broker, with a real client: what stays, through kills, and what else must keep working."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asking import EARLIEST, LATEST, RECENT_MS, batch_of, create_topic, delete_topic, list_offset, produce
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tidelog.testing import BrokerProcess, RawClient, eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidelog.testing import StartBroker

SEGMENT_BYTES = 4000
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
EAGER = {"log.cleaner.backoff.ms": "20", "log.cleaner.dedupe.buffer.size": str(1 << 20)}
KEYS = 10
CLOSING = b"closing"
"""The key of a record that takes nearly a segment: what was written before it is in closed ones."""


class Kept(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


def write(broker: BrokerProcess, topic: str, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
    """In batches of a few records; all are acknowledged when it returns."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 5, "enable.idempotence": True})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def close_segment(broker: BrokerProcess, topic: str) -> None:
    write(broker, topic, [(CLOSING, b"x" * (SEGMENT_BYTES - 200))])


def updates(rounds: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"key-%d" % key, b"%d-%d" % (key, number)) for number in range(rounds) for key in range(KEYS)]


def read(broker: BrokerProcess, topic: str) -> list[Kept]:
    """Everything, in order. A client that does not get over gaps and emptied batches does not come to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Kept] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "reading hangs"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(Kept(message.offset() or 0, message.key(), message.value()))
    finally:
        consumer.close()


def log_bytes(partition: Path) -> int:
    total = 0
    for path in partition.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # replaced just now
    return total


def await_kept(broker: BrokerProcess, topic: str, expected: list[Kept]) -> None:
    """Until the newest records are all that is left."""

    def only_these_are_left() -> bool:
        found = without_closing(read(broker, topic))
        assert [each for each in found if each in expected] == expected, "the newest are there at any time"
        return found == expected

    eventually(only_these_are_left, "the log to shrink", within_s=60)


def last_ones(rounds: int) -> list[Kept]:
    first = (rounds - 1) * KEYS
    return [Kept(first + key, b"key-%d" % key, b"%d-%d" % (key, rounds - 1)) for key in range(KEYS)]


def without_closing(found: list[Kept]) -> list[Kept]:
    return [each for each in found if each.key != CLOSING]


def test_only_the_newest_of_each_key_stays_under_its_offset_and_writing_goes_on(fresh_broker: StartBroker) -> None:
    broker = fresh_broker(EAGER)
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs=COMPACTED)
        write(broker, "t", updates(40))
        close_segment(broker, "t")
        before = log_bytes(broker.data_dir / "t-0")
        await_kept(broker, "t", last_ones(40))
        assert log_bytes(broker.data_dir / "t-0") < before
        assert list_offset(client, "t", EARLIEST).offset == 0
        assert list_offset(client, "t", LATEST).offset == 40 * KEYS + 1
        write(broker, "t", [(b"key-3", None), (b"key-4", b"newer")])
        assert [each.offset for each in read(broker, "t")][-2:] == [40 * KEYS + 1, 40 * KEYS + 2]
    broker.restart()
    kept = without_closing(read(broker, "t"))
    assert kept == [*last_ones(40), Kept(401, b"key-3", None), Kept(402, b"key-4", b"newer")]
    close_segment(broker, "t")
    eventually(lambda: len(without_closing(read(broker, "t"))) == KEYS, "the older ones to go", within_s=60)
    assert {each.key: each.value for each in read(broker, "t")}[b"key-3"] is None, "a tombstone stays for its time"


def test_tombstones_go_when_their_time_is_over_and_nothing_comes_back(fresh_broker: StartBroker) -> None:
    broker = fresh_broker(EAGER)
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs={**COMPACTED, "delete.retention.ms": "0"})
    write(broker, "t", updates(3))
    write(broker, "t", [(b"key-%d" % key, None) for key in range(KEYS - 1)])

    def only_one_key_is_left() -> bool:
        close_segment(broker, "t")
        return {each.key for each in read(broker, "t")} == {b"key-9", CLOSING}

    eventually(only_one_key_is_left, "the tombstones to go", within_s=60)
    broker.kill()
    broker.start()
    assert {each.key for each in read(broker, "t")} == {b"key-9", CLOSING}


def test_a_broker_killed_while_it_cleans_begins_again(fresh_broker: StartBroker) -> None:
    slow = {**EAGER, "log.cleaner.io.max.bytes.per.second": "40000"}
    broker = fresh_broker(slow)
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs={**COMPACTED, "min.cleanable.dirty.ratio": "0.5"})
    partition = broker.data_dir / "t-0"
    for _ in range(2):
        write(broker, "t", updates(60))
        close_segment(broker, "t")
        eventually(lambda: any(partition.glob("*.cleaned")), "the cleaner to write", within_s=60, every_s=0.001)
        broker.kill()
        broker.start()
        found = without_closing(read(broker, "t"))
        assert {each.key: each.value for each in found} == dict(updates(60)), "the newest are there at any time"
        assert [each.offset for each in found] == sorted(each.offset for each in found)
    broker.kill()
    del broker.settings["log.cleaner.io.max.bytes.per.second"]
    broker.start()
    second_round = 60 * KEYS + 1
    await_kept(broker, "t", [each._replace(offset=each.offset + second_round) for each in last_ones(60)])
    assert not any(partition.glob("*.swap"))
    assert "tried again" not in broker.log_tail(2000), broker.log_tail(2000)


def test_records_may_be_compacted_and_deleted_by_age(fresh_broker: StartBroker) -> None:
    broker = fresh_broker(EAGER)
    both = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "3600000"}
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs=both)
        for number in range(3):  # each has a segment of its own
            old = batch_of([b"x" * 3800], key=b"old-%d" % number, timestamp_ms=RECENT_MS - 7_200_000)
            assert produce(client, "t", old) == number
        write(broker, "t", updates(40))
        close_segment(broker, "t")
        await_kept(broker, "t", [each._replace(offset=each.offset + 3) for each in last_ones(40)])
        assert list_offset(client, "t", EARLIEST).offset == 3


def test_a_topic_that_is_deleted_while_it_is_cleaned_is_gone(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({**EAGER, "log.cleaner.io.max.bytes.per.second": "20000"})
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs=COMPACTED)
        write(broker, "t", updates(60))
        close_segment(broker, "t")
        partition = broker.data_dir / "t-0"
        eventually(lambda: any(partition.glob("*.cleaned")), "the cleaner to write", within_s=60, every_s=0.001)
        delete_topic(client, "t")
        create_topic(client, "t", configs=COMPACTED)
    write(broker, "t", updates(2))
    assert read(broker, "t") == [Kept(at, *pair) for at, pair in enumerate(updates(2))]
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_tail()


def test_nothing_is_compacted_when_the_cleaner_is_off(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({**EAGER, "log.cleaner.enable": "false"})
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs=COMPACTED)
        create_topic(client, "aged", configs={"retention.ms": "1", "file.delete.delay.ms": "0"})
        write(broker, "t", updates(40))
        close_segment(broker, "t")
        write(broker, "aged", [(b"k", b"v")])
        eventually(lambda: list_offset(client, "aged", EARLIEST).offset == 1, "logs to be looked after", within_s=60)
    assert len(read(broker, "t")) == 40 * KEYS + 1
    assert broker.stop() == 0
    broker.settings["log.cleaner.enable"] = "true"
    broker.start()
    await_kept(broker, "t", last_ones(40))


def test_committed_offsets_are_compacted_and_survive_it(fresh_broker: StartBroker) -> None:
    segment_bytes = 1 << 20
    metadata = "m" * 4000
    commits = 3 * segment_bytes // len(metadata)
    broker = fresh_broker(
        {
            **EAGER,
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": str(segment_bytes),
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.segment.delete.delay.ms": "0",
        }
    )
    with RawClient(broker.port) as client:
        create_topic(client, "t")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    for number in range(commits):
        consumer.commit(offsets=[TopicPartition("t", 0, number, metadata)], asynchronous=False)
    partition = broker.data_dir / "__consumer_offsets-0"
    eventually(lambda: log_bytes(partition) < 2 * segment_bytes, "committed offsets to be compacted", within_s=60)
    for end in (BrokerProcess.kill, BrokerProcess.stop):
        end(broker)
        broker.start()
        (found,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
        assert found.offset == commits - 1
    consumer.close()
