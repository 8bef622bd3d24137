"""A look at the batches in a partition's segment files, with nothing but the format's fixed byte positions.

Deliberately not Tidelog's own reader: a misunderstanding there must not hide itself here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


class StoredBatch(NamedTuple):
    base_offset: int
    size: int
    magic: int
    codec: str
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    base_sequence: int
    record_count: int


def partition_dir(data_dir: Path, topic: str, partition: int = 0) -> Path:
    """Wherever below the data directory the partition is kept."""
    (found,) = Path(data_dir).rglob(f"{topic}-{partition}")
    return found


def stored_batches(data_dir: Path, topic: str, partition: int = 0) -> list[StoredBatch]:
    batches = []
    for segment in sorted(partition_dir(data_dir, topic, partition).glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position < len(data):
            batches.append(_batch_at(data, position))
            position += batches[-1].size
    return batches


def stored_codecs(data_dir: Path, topic: str, partition: int = 0) -> set[str]:
    return {batch.codec for batch in stored_batches(data_dir, topic, partition)}


def _batch_at(data: bytes, position: int) -> StoredBatch:
    def number(start: int, end: int) -> int:
        return int.from_bytes(data[position + start : position + end], "big", signed=True)

    return StoredBatch(
        base_offset=number(0, 8),
        size=12 + number(8, 12),
        magic=number(16, 17),
        codec=CODEC_NAMES[number(21, 23) & 7],
        last_offset_delta=number(23, 27),
        max_timestamp=number(35, 43),
        producer_id=number(43, 51),
        base_sequence=number(53, 57),
        record_count=number(57, 61),
    )
