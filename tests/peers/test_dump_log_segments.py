"""Kafka's own dump tool reads our files: segments, both indexes and producer snapshots, and finds nothing wrong."""

from __future__ import annotations

import random
import re
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from apache_kafka import java_command
from drivers import Record
from peer_brokers import create_on
from stored_batches import partition_dir, stored_batches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from drivers import Peer
    from peer_brokers import Broker, StartBroker

pytestmark = pytest.mark.peers
pytest_plugins = ["peer_fixtures"]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMP_TIMEOUT_S = 120
TOPIC = "dumped"
WRITERS = (("java", "none"), ("franz-go", "gzip"), ("confluent", "snappy"), ("java", "lz4"), ("franz-go", "zstd"))
RECORDS_EACH = 120
# A JVM that SIGTERM stops cleanly ends with 128 + 15.
CLEAN_EXITS = (0, 143)
TOPIC_CONFIG = {
    # The smallest segment Kafka 4 allows, so that a few megabytes fill several.
    "segment.bytes": str(1 << 20),
    "index.interval.bytes": "4096",
    "retention.ms": "-1",
}

DUMPED_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: (?P<timestamp>\d+) keySize: -?\d+ valueSize: -?\d+"
    r" sequence: (?P<sequence>\d+) headerKeys: \[(?P<headers>.*?)\] key: (?P<key>\S+) payload: (?P<value>\S+)"
)
DUMPED_BATCH = re.compile(
    r"^baseOffset: (?P<base>\d+) .* size: (?P<size>\d+) magic: 2 compresscodec: (?P<codec>\w+) crc: \d+ isvalid: true$",
    re.MULTILINE,
)
DUMPED_PRODUCER = re.compile(r"producerId: (?P<id>\d+) .*?lastSequence: (?P<sequence>-?\d+)")
# The tool counts every segment's records from -1: with --print-data-log it stumbles over each base offset but 0.
TOOL_STUMBLES = re.compile(r"Non-consecutive offsets in \S+/0*(?P<base>\d+)\.log\n  -1 is followed by (?P=base)\n")


class Dump(NamedTuple):
    output: str
    complaints: str


@pytest.mark.parametrize("ended_by", ["clean-stop", "kill-and-recovery"])
def test_kafka_reads_our_files(own_broker: StartBroker, peers: dict[str, Peer], ended_by: str) -> None:
    broker = own_broker()
    create_on(broker, TOPIC, config=TOPIC_CONFIG)
    records = readable_records()
    write_all(broker, peers, records)
    if ended_by == "kill-and-recovery":
        broker.kill()
        broker.start()
    assert broker.stop() in CLEAN_EXITS

    directory = partition_dir(broker.data_dir, TOPIC)
    assert len(files_of(directory, ".log")) >= 3
    check_records(dump(files_of(directory, ".log", ".index", ".timeindex"), "--print-data-log"), records)
    check_batches(dump(files_of(directory, ".log")), broker.data_dir)
    check_producers(dump(files_of(directory, ".snapshot")[-1:]), broker.data_dir)
    check_indexes(files_of(directory, ".index", ".timeindex"))


def write_all(broker: Broker, peers: dict[str, Peer], records: Sequence[Record]) -> None:
    """A producer for each codec, each with an id of its own, in batches of a few records."""
    for place, (writer, codec) in enumerate(WRITERS):
        part = records[place * RECORDS_EACH : (place + 1) * RECORDS_EACH]
        deliveries = peers[writer].produce(
            broker.bootstrap, TOPIC, part, codec=codec, idempotent=True, batch_bytes=30_000
        )
        assert {delivery.error for delivery in deliveries} == {None}


def check_records(dumped: Dump, records: Sequence[Record]) -> None:
    """Without sanity check the tool looks every index entry up in the segment, and complains if it leads astray."""
    assert dumped.complaints == ""
    printed = list(DUMPED_RECORD.finditer(dumped.output))
    assert [int(line["offset"]) for line in printed] == list(range(len(records)))
    assert [int(line["sequence"]) for line in printed] == [place % RECORDS_EACH for place in range(len(records))]
    assert [as_record(line) for line in printed] == [(r.timestamp, r.key, r.value, ["a", "b"]) for r in records]


def check_batches(dumped: Dump, data_dir: Path) -> None:
    assert dumped.complaints == ""
    printed = [(int(line["base"]), int(line["size"]), line["codec"]) for line in DUMPED_BATCH.finditer(dumped.output)]
    stored = stored_batches(data_dir, TOPIC)
    assert printed == [(batch.base_offset, batch.size, batch.codec) for batch in stored]
    assert {batch.codec for batch in stored} == {codec for _, codec in WRITERS}


def check_producers(dumped: Dump, data_dir: Path) -> None:
    """The newest snapshot holds for each producer the last sequence that the batches themselves say."""
    assert dumped.complaints == ""
    printed = {int(line["id"]): int(line["sequence"]) for line in DUMPED_PRODUCER.finditer(dumped.output)}
    assert len(printed) == len(WRITERS)
    assert printed == {
        batch.producer_id: batch.base_sequence + batch.record_count - 1 for batch in stored_batches(data_dir, TOPIC)
    }


def check_indexes(indexes: Sequence[Path]) -> None:
    checked = dump(indexes, "--index-sanity-check")
    assert checked.complaints == ""
    passed = [line for line in checked.output.splitlines() if line.endswith("passed sanity check.")]
    assert passed == [f"{index} passed sanity check." for index in indexes]
    assert all(index.stat().st_size > 0 for index in indexes)


def readable_records() -> list[Record]:
    """Text without blanks, since that is how the tool prints. Each codec finds something to compress in it."""
    noise = random.Random(8)
    # Recent, for recovery forgets producers whose records are old.
    start_ms = int(time.time() * 1000) - 3_600_000
    return [
        Record(
            f"key-{place}".encode(),
            (noise.randbytes(2_000).hex() * 2).encode(),
            (("a", b"1"), ("b", None)),
            start_ms + place,
        )
        for place in range(RECORDS_EACH * len(WRITERS))
    ]


def files_of(directory: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in suffixes)


def dump(files: Sequence[Path], *options: str) -> Dump:
    arguments = ["--files", ",".join(map(str, files)), *options]
    done = subprocess.run(
        java_command(DUMP, arguments), capture_output=True, text=True, timeout=DUMP_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return Dump(done.stdout, TOOL_STUMBLES.sub("", done.stderr))


def as_record(line: re.Match[str]) -> tuple[int, bytes, bytes, list[str]]:
    return int(line["timestamp"]), line["key"].encode(), line["value"].encode(), line["headers"].split(",")
