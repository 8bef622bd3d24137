"""The comparison of replicas' logs sees every difference, and none where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asking import batch_of

from tidelog.testing.cluster_logs import difference, stored_batches
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

PLACE = TopicPartition("orders", 0)
BASE_OFFSET = slice(0, 8)
LEADER_EPOCH = slice(12, 16)


def batch(base_offset: int, epoch: int, value: bytes = b"value") -> bytes:
    data = batch_of([value, value])
    data[BASE_OFFSET] = base_offset.to_bytes(8, "big")
    data[LEADER_EPOCH] = epoch.to_bytes(4, "big")
    return bytes(data)


def replica(path: Path, segments: dict[int, list[bytes]]) -> Path:
    (path / str(PLACE)).mkdir(parents=True)
    for base_offset, batches in segments.items():
        (path / str(PLACE) / f"{base_offset:020}.log").write_bytes(b"".join(batches))
    return path


def test_segments_may_end_in_different_places(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", {0: [batch(0, 1), batch(2, 1)], 4: [batch(4, 2)]})
    two = replica(tmp_path / "2", {0: [batch(0, 1)], 2: [batch(2, 1), batch(4, 2)]})
    assert difference({1: one, 2: two}, PLACE) is None
    assert [(found.base_offset, found.last_offset, found.leader_epoch) for found in stored_batches(two, PLACE)] == [
        (0, 1, 1),
        (2, 3, 1),
        (4, 5, 2),
    ]


def test_every_difference_is_seen(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", {0: [batch(0, 1), batch(2, 1)]})
    others = {
        "epoch": [batch(0, 1), batch(2, 2)],
        "bytes": [batch(0, 1), batch(2, 1, b"other")],
        "shorter": [batch(0, 1)],
        "longer": [batch(0, 1), batch(2, 1), batch(4, 1)],
        "offset": [batch(0, 1), batch(3, 1)],
        "empty": [],
    }
    for name, batches in others.items():
        other = replica(tmp_path / name, {0: batches})
        found = difference({1: one, 2: other}, PLACE)
        assert found is not None, name
        assert found.startswith("orders-0: batch "), found
    assert difference({1: one, 2: tmp_path / "nothing"}, PLACE) is not None
