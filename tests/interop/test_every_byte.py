"""Whatever one client writes, every client reads back byte for byte."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from all_clients import CLIENTS, LIBRARIES, every_client, every_codec, every_library
from client_drivers import ClientDriver, Sent, Writing
from confluent_driver import ConfluentDriver
from topics import make_topic

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_drivers import Got

ALL_BYTES = bytes(range(256))
UNICODE_BYTES = "Größe 日本語 🌊".encode()

ASSORTED = (
    Sent(b"v"),
    Sent(b"value", b"key"),
    Sent(ALL_BYTES * 3, ALL_BYTES),
    Sent(UNICODE_BYTES, UNICODE_BYTES),
    Sent(b""),
    Sent(b"", b""),
    Sent(b"empty key", b""),
    Sent(None, b"tombstone"),
    Sent(b"large key", b"k" * 20_000),
    Sent(b"compressible " * 5000, b"z"),
    Sent(b"one header", b"k", (("name", b"content"),)),
    Sent(b"two of one name", b"k", (("twice", b"first"), ("twice", b"second"), ("other", b"third"))),
    Sent(b"null header", b"k", (("null", None), ("full", b"x"))),
    Sent(b"headers without key", None, (("a", b"1"), ("b", b"2"))),
    Sent(b"at a time", b"k", (), SystemClock().now_ms() - 5_000),
)

EMPTY_HEADER = Sent(b"empty header", b"k", (("", b"no name"), ("empty", b""), ("näme", ALL_BYTES)))


def random_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def assert_same(client: ClientDriver, sent: Sequence[Sent], got: Sequence[Got]) -> None:
    assert [record.offset for record in got] == list(range(len(sent))), client.name
    for expected, found in zip(sent, got, strict=True):
        assert (found.key, found.value, found.headers) == (expected.key, expected.value, expected.headers), client.name
        if expected.timestamp_ms is not None:
            assert found.timestamp_ms == expected.timestamp_ms, client.name


def write_and_read_by_all(
    writer: ClientDriver, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing
) -> None:
    written = [record for record in records if writer.can_write(record)]
    offsets = writer.write(bootstrap, topic, written, how)
    if offsets is not None:
        assert offsets == list(range(len(written)))
    for reader in CLIENTS:
        assert_same(reader, written, reader.read(bootstrap, topic, len(written)))


@every_client
@every_codec
def test_assorted_records(client: ClientDriver, codec: str, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    write_and_read_by_all(client, bootstrap, topic, ASSORTED, Writing(codec))


@every_client
@every_codec
def test_sizes_from_one_byte_to_one_megabyte(client: ClientDriver, codec: str, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    sizes = (1, 2, 63, 64, 100, 127, 128, 8191, 8192, 16_384, 65_536, 300_000, 999_000)
    records = [Sent(random_bytes(size), b"%d" % size) for size in sizes]
    write_and_read_by_all(client, bootstrap, topic, records, Writing(codec))


@every_client
def test_records_of_several_megabytes_on_a_topic_that_allows_them(
    client: ClientDriver, bootstrap: str, topic: str
) -> None:
    make_topic(bootstrap, topic, configs={"max.message.bytes": str(8 << 20)})
    records = [Sent(b"small", b"1"), Sent(random_bytes(5 << 20), b"large"), Sent(b"small again", b"2")]
    write_and_read_by_all(client, bootstrap, topic, records, Writing(max_bytes=7 << 20))


@every_library
def test_headers_with_empty_and_binary_contents(client: ClientDriver, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    client.write(bootstrap, topic, [EMPTY_HEADER])
    for reader in LIBRARIES:
        assert_same(reader, [EMPTY_HEADER], reader.read(bootstrap, topic, 1))


@every_client
def test_many_small_records_keep_their_order(client: ClientDriver, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    records = [Sent(b"record %d" % number, b"%d" % (number % 7)) for number in range(3000)]
    write_and_read_by_all(client, bootstrap, topic, records, Writing("lz4"))


@every_client
def test_reading_from_the_middle(client: ClientDriver, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    ConfluentDriver().write(bootstrap, topic, [Sent(b"%d" % number) for number in range(500)])
    for start in (1, 250, 499):
        got = client.read(bootstrap, topic, 500 - start, start=start)
        assert [record.value for record in got] == [b"%d" % number for number in range(start, 500)]


@every_codec
@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_what_the_broker_compressed_anew_is_read_by_all(codec: str, stored: str, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, configs={"compression.type": stored})
    records = [Sent(b"record %d" % number * 20, b"k", (("n", b"%d" % number),)) for number in range(50)]
    ConfluentDriver().write(bootstrap, topic, records, Writing(codec))
    for reader in CLIENTS:
        assert_same(reader, records, reader.read(bootstrap, topic, len(records)))
