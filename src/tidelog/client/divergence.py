"""Whether a partition still holds what was read of it, after its leader has changed (KIP-320). No I/O.

A leader that was elected although it lacked records goes on without them, and gives their offsets to others. Whoever
has read them would take the new ones for a continuation. So a reader tells the new leader the epoch of the last record
it has, and the leader says where, in its own log, that epoch ended.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.types import Offset

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The last epoch up to the one asked for that the leader has, and the first offset after it."""

    leader_epoch: int
    end_offset: int

    @property
    def common_end(self) -> Offset | None:
        """Up to here both have read the same; None if the leader has nothing of what was asked for."""
        if UNKNOWN in {self.leader_epoch, self.end_offset}:
            return None
        return Offset(self.end_offset)


class Finding(Enum):
    INTACT = "everything is still there"
    AHEAD_LOST = "some of what was fetched ahead is not there, all that was given to the application is"
    TRUNCATED = "some of what was given to the application is not there any more"


def compare(end: EpochEnd, *, position: Offset, fetch_offset: Offset) -> Finding:
    """The application has what is before `position`; what is before `fetch_offset` was fetched."""
    common_end = end.common_end
    if common_end is None or common_end < position:
        return Finding.TRUNCATED
    return Finding.INTACT if common_end >= fetch_offset else Finding.AHEAD_LOST
