"""Record batches: any bytes are checked, inflated and taken apart with nothing but BrokerError raised.

Every input is tried as it is, and once more as the records of a batch whose length and checksum are right, since no
fuzzer guesses a checksum. The first byte chooses the codec and the topic's settings.

python fuzz/fuzz_batches.py -max_total_time=60
"""
# ruff: noqa: INP001 -- scripts, not a package

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

import atheris

with atheris.instrument_imports(include=["tidelog"]):
    from tidelog.config.topic import TopicConfig
    from tidelog.errors import BrokerError
    from tidelog.records.control import read_marker
    from tidelog.records.header import HEADER, LOG_OVERHEAD, MAGIC_V2, peek, write_crc
    from tidelog.records.record import iter_batches, iter_records
    from tidelog.records.validate import check_produced, deep_check, needs_deep_check

INFLATED_MAX = 100_000
NOW_MS = 1_700_000_000_000

PLAIN = TopicConfig()
TOPICS = [
    PLAIN,
    replace(PLAIN, cleanup_policy=frozenset({"compact"})),
    replace(PLAIN, compression_type="zstd"),
    replace(PLAIN, compression_type="uncompressed"),
]


def sealed(choice: int, records: bytes) -> bytearray:
    """The batch that a well-meaning producer with these record bytes would send."""
    codec, count = choice & 7, choice >> 5
    size = HEADER.size + len(records)
    batch = bytearray(size)
    fields = (0, size - LOG_OVERHEAD, -1, MAGIC_V2, 0, codec, count, NOW_MS, NOW_MS, -1, -1, -1, count + 1)
    HEADER.pack_into(batch, 0, *fields)
    batch[HEADER.size :] = records
    write_crc(batch, 0, size)
    return batch


def take_apart(data: bytes | bytearray) -> None:
    with contextlib.suppress(BrokerError):
        for batch in iter_batches(data):
            with contextlib.suppress(BrokerError):
                list(iter_records(batch.data, INFLATED_MAX))
            with contextlib.suppress(BrokerError):
                read_marker(batch.data)


def produce(data: bytes | bytearray, topic: TopicConfig) -> None:
    """What the leader does, and then that consumers can read what it took."""
    batch = memoryview(bytearray(data))
    try:
        header = check_produced(batch, topic, NOW_MS)
        stored = deep_check(batch, header, topic, INFLATED_MAX) if needs_deep_check(header, topic) else batch
    except BrokerError:
        return
    assert peek(stored).size == len(stored)
    if stored is not batch:  # recompressed, hence looked at record by record
        assert len(list(iter_records(stored))) == header.record_count


def one_input(data: bytes) -> None:
    if not data:
        return
    choice, rest = data[0], data[1:]
    topic = TOPICS[choice >> 3 & 3]
    for batch in (rest, sealed(choice, rest)):
        take_apart(batch)
        produce(batch, topic)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
