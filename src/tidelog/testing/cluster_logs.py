"""Compares what replicas of a partition have on disk, byte by byte.

Where one segment ends and the next begins is each replica's own choice; the batches in them are not.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.header import peek

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidelog.types import TopicPartition


class StoredBatch(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    data: bytes

    def __str__(self) -> str:
        return f"offsets {self.base_offset}-{self.last_offset} of epoch {self.leader_epoch}, checksum {self.crc:#010x}"


def stored_bytes(data_dir: Path, partition: TopicPartition) -> bytes:
    """All batches of a partition, one after the other; empty where there is none."""
    segments = sorted((data_dir / str(partition)).glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def stored_batches(data_dir: Path, partition: TopicPartition) -> list[StoredBatch]:
    data = stored_bytes(data_dir, partition)
    batches = []
    position = 0
    while position < len(data):
        header = peek(data, position)
        batch = data[position : position + header.size]
        batches.append(StoredBatch(header.base_offset, header.last_offset, header.leader_epoch, header.crc, batch))
        position += header.size
    return batches


def difference(replicas: Mapping[int, Path], partition: TopicPartition) -> str | None:
    """How the logs of these brokers differ, for people; None when they are the same to the last byte."""
    contents = {broker: stored_bytes(data_dir, partition) for broker, data_dir in replicas.items()}
    if len(set(contents.values())) <= 1:
        return None
    (first, *others) = replicas
    reference = stored_batches(replicas[first], partition)
    for other in others:
        compared = zip_longest(reference, stored_batches(replicas[other], partition))
        for number, (ours, theirs) in enumerate(compared):
            if ours != theirs:
                return (
                    f"{partition}: batch {number} is {ours or 'not there'} on broker {first}, "
                    f"but {theirs or 'not there'} on broker {other}"
                )
    return f"{partition}: the logs have changed while they were compared"
