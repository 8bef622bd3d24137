"""Batches against librdkafka, whose C codecs share no code with ours.

librdkafka brings a small broker of its own for tests, which keeps batches as they come. A producer puts batches there
that we read; we put batches there that its consumer reads.
"""

from __future__ import annotations

import random
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tidelog.config.topic import TopicConfig
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.header import crc_ok
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.records.validate import check_produced, deep_check

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_MS = 1_700_000_000_000
TIMEOUT_S = 60
PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 11

each_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


def sample_records() -> list[Record]:
    """Enough to fill several compression blocks, text and noise, with all the nulls there can be."""
    chance = random.Random(11)
    records = [Record(i, NOW_MS + i, b"key %d" % i, b"value %d " % i * 40) for i in range(400)]
    records += [Record(400 + i, NOW_MS, None, chance.randbytes(2000)) for i in range(20)]
    records += [
        Record(420, NOW_MS + 50, b"tombstone", None),
        Record(421, NOW_MS - 50, b"headers", b"v", (("a", b"1"), ("a", None), ("empty", b""))),
    ]
    return records


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[str, int]]:
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced by the mock", "log_level": 3})
    address = next(iter(owner.list_topics(timeout=TIMEOUT_S).brokers.values()))
    yield address.host, address.port
    owner.flush(TIMEOUT_S)


def ask(broker: tuple[str, int], api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, 1) + text("test")
    with socket.create_connection(broker, timeout=TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            return stream.read(length)[4:]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def produce(broker: tuple[str, int], topic: str, batch: bytearray) -> None:
    request = struct.pack(">hhii", -1, -1, 10_000, 1) + text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    reply = ask(broker, PRODUCE, PRODUCE_VERSION, request)
    (error,) = struct.unpack_from(">h", reply, 4 + 2 + len(topic) + 4 + 4)
    assert error == 0


def fetch(broker: tuple[str, int], topic: str, offset: int) -> bytes:
    request = (
        struct.pack(">iiiibiii", -1, 1000, 1, 1 << 26, 0, 0, -1, 1)
        + text(topic)
        + struct.pack(">iiiqqi", 1, 0, -1, offset, -1, 1 << 26)
        + struct.pack(">i", 0)
        + text("")
    )
    reply = ask(broker, FETCH, FETCH_VERSION, request)
    partition_at = 4 + 2 + 4 + 4 + 2 + len(topic) + 4
    error, aborted_count = struct.unpack_from(">4xh24xi", reply, partition_at)
    assert error == 0
    records_at = partition_at + 34 + max(0, aborted_count) * 16 + 4
    (length,) = struct.unpack_from(">i", reply, records_at)
    return reply[records_at + 4 : records_at + 4 + length]


def as_record(message: Message) -> Record:
    assert message.error() is None
    offset = message.offset()
    assert offset is not None
    headers: list[tuple[str, bytes | None]] = []
    pairs = message.headers() or []
    assert not isinstance(pairs, dict)
    for name, content in pairs:
        assert not isinstance(content, str)
        headers.append((name, content))
    return Record(offset, message.timestamp()[1], message.key(), message.value(), tuple(headers))


@each_codec
def test_we_read_what_librdkafka_builds(broker: tuple[str, int], codec: Codec) -> None:
    topic = f"theirs-{codec.name}"
    expected = sample_records()
    producer = Producer(
        {
            "bootstrap.servers": f"{broker[0]}:{broker[1]}",
            "compression.type": codec.name.lower(),
            "linger.ms": 1000,
            "log_level": 3,
        }
    )
    for record in expected:
        producer.produce(
            topic, record.value, record.key, partition=0, timestamp=record.timestamp, headers=list(record.headers)
        )
    assert producer.flush(TIMEOUT_S) == 0

    found: list[Record] = []
    codecs: set[int] = set()
    while len(found) < len(expected):
        for header, data in iter_batches(fetch(broker, topic, len(found))):
            assert crc_ok(data, 0, len(data))
            codecs.add(header.codec)
            found.extend(iter_records(data))
            as_sent = bytearray(data)
            struct.pack_into(">q", as_sent, 0, 0)
            checked = check_produced(memoryview(as_sent), TopicConfig(), NOW_MS)
            assert deep_check(memoryview(as_sent), checked, TopicConfig()).obj is as_sent
    assert found == expected
    # A batch that would not become smaller, as one with few records, is sent as it is.
    assert codec in codecs
    assert codecs <= {codec, Codec.NONE}


@each_codec
@pytest.mark.parametrize("level", [None, 1])
def test_librdkafka_reads_what_we_build(broker: tuple[str, int], codec: Codec, level: int | None) -> None:
    topic = f"ours-{codec.name}-{level}"
    expected = sample_records()
    consumer = Consumer(
        {
            "bootstrap.servers": f"{broker[0]}:{broker[1]}",
            "group.id": "unused",
            "check.crcs": True,
            "allow.auto.create.topics": True,
            "log_level": 3,
        }
    )
    try:
        consumer.list_topics(topic, TIMEOUT_S)  # creates it
        produce(broker, topic, build_batch(expected, codec=codec, level=level))
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Record] = []
        while len(found) < len(expected):
            messages = consumer.consume(len(expected), TIMEOUT_S)
            assert messages
            found.extend(map(as_record, messages))
    finally:
        consumer.close()
    assert found == expected
