"""From which replica a consumer should read: one in its own rack, if there is one that has what it wants (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.replication.isr import Follower


def nearest(
    rack: str, leader: int, racks: Mapping[int, str | None], followers: Iterable[tuple[int, Follower]], offset: int
) -> int:
    """The leader, if it is as near as any, or the furthest follower in the consumer's rack that has `offset`.

    `racks` holds the brokers that can be reached; `followers` those whom it makes sense to read from.
    """
    if not rack or racks.get(leader) == rack:
        return leader
    best, best_end = leader, -1
    for replica, follower in followers:
        has_offset = follower.start_offset <= offset <= follower.end_offset
        if racks.get(replica) == rack and has_offset and follower.end_offset > best_end:
            best, best_end = replica, follower.end_offset
    return best
