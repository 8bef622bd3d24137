"""Whatever one client writes, every client reads back: each byte, in each codec, in order, at the offsets reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sample_records import BATCH_BYTES_MAX, TOPIC_CONFIG, sample_records
from stored_batches import stored_codecs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers import Peer, Received, Record
    from peer_brokers import Broker, CreateTopic

pytestmark = pytest.mark.peers
pytest_plugins = ["peer_fixtures"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# kafkajs brings gzip and takes the others as additions; the test's name says which one was added.
KAFKAJS_ADDITIONS = {"snappy": "kafkajs-snappy", "lz4": "lz4js", "zstd": "zstd-wasm"}


def written_in_each_codec() -> list[object]:
    def name(writer: str, codec: str) -> str:
        addition = KAFKAJS_ADDITIONS.get(codec) if writer == "kafkajs" else None
        return f"{writer}-with-{addition}-{codec}" if addition else f"{writer}-{codec}"

    return [
        pytest.param(writer, codec, id=name(writer, codec))
        for writer in ("java", "franz-go", "kafkajs", "confluent")
        for codec in CODECS
    ]


@pytest.mark.parametrize(("writer_name", "codec"), written_in_each_codec())
def test_every_peer_reads_what_a_peer_wrote(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, writer_name: str, codec: str
) -> None:
    topic = create_topic(f"round-trip-{writer_name}-{codec}", config=TOPIC_CONFIG)
    writer = peers[writer_name]
    records = [writer.can_write(record) for record in sample_records(seed=CODECS.index(codec))]

    deliveries = writer.produce(peer_broker.bootstrap, topic, records, codec=codec, batch_bytes=BATCH_BYTES_MAX)

    assert [delivery.error for delivery in deliveries] == [None] * len(records)
    assert [delivery.offset for delivery in deliveries] == list(range(len(records)))
    assert codec in stored_codecs(peer_broker.data_dir, topic)
    assert stored_codecs(peer_broker.data_dir, topic) <= {codec, "none"}

    def read(reader: Peer) -> list[Received]:
        return reader.consume(peer_broker.bootstrap, topic, len(records))

    with ThreadPoolExecutor(max_workers=2) as pool:
        for reader, received in zip(peers.values(), pool.map(read, peers.values()), strict=True):
            assert_same(reader, received, records)


def assert_same(reader: Peer, received: Sequence[Received], records: Sequence[Record]) -> None:
    """Compares one by one, since a whole list of mebibytes makes an unreadable difference."""
    assert [item.offset for item in received] == list(range(len(records))), reader.name
    for item, record in zip(received, records, strict=True):
        expected = reader.will_show(record)
        at = f"{reader.name} at offset {item.offset}"
        assert item.record.timestamp == expected.timestamp, at
        assert item.record.key == expected.key, at
        assert item.record.headers == expected.headers, at
        assert item.record.value == expected.value, at
        assert item.record.partition == expected.partition, at


@pytest.mark.parametrize(
    ("writer_name", "reader_name"),
    [("java", "franz-go"), ("franz-go", "kafkajs"), ("kafkajs", "confluent"), ("confluent", "java")],
)
def test_partitions_are_kept_apart(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, writer_name: str, reader_name: str
) -> None:
    topic = create_topic(f"partitions-{writer_name}-{reader_name}", partitions=3, config=TOPIC_CONFIG)
    writer, reader = peers[writer_name], peers[reader_name]
    by_partition = {
        partition: [
            writer.can_write(record)
            for record in sample_records(seed=partition, partition=partition)
            if len(record.value or b"") < 10_000
        ]
        for partition in range(3)
    }
    interleaved = [record for group in zip(*by_partition.values(), strict=True) for record in group]

    deliveries = writer.produce(peer_broker.bootstrap, topic, interleaved, codec="gzip")

    for partition, records in by_partition.items():
        offsets = [delivery.offset for delivery in deliveries if delivery.partition == partition]
        assert offsets == list(range(len(records)))
        assert_same(reader, reader.consume(peer_broker.bootstrap, topic, len(records), partition=partition), records)


@pytest.mark.parametrize("reader_name", ["java", "franz-go", "kafkajs", "confluent"])
def test_reading_starts_in_the_middle_of_a_batch(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, reader_name: str
) -> None:
    topic = create_topic(f"middle-{reader_name}", config=TOPIC_CONFIG)
    reader = peers[reader_name]
    records = [record for record in sample_records(seed=7) if len(record.value or b"") < 1_000]
    peers["confluent"].produce(peer_broker.bootstrap, topic, records, codec="zstd")
    middle = len(records) // 2

    received = reader.consume(peer_broker.bootstrap, topic, len(records) - middle, start=middle)

    assert [item.offset for item in received] == list(range(middle, len(records)))
    assert [item.record for item in received] == [reader.will_show(record) for record in records[middle:]]
