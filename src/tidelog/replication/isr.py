"""Who is in sync, and what is safe: the rules of the in-sync replicas. Pure; times are milliseconds that never go back.

- A record is safe when every in-sync replica has it: the high watermark is the smallest of their log ends.
- While a change of the set is proposed but not yet confirmed, nobody knows which of the two is in force. So everyone in
  either of them is waited for (KIP-497).
- A follower leaves when it has not been at the leader's end for too long; it joins when it has all that is safe and has
  reached the offset at which the present leader began, below which its log cannot differ any more.
- Observers never join.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNKNOWN_OFFSET = -1
LONG_AGO_MS = -(2**62)
NO_BROKER_EPOCH = -1


class LagBounds(NamedTuple):
    """How far a follower may stay behind before it is no longer in sync."""

    time_ms: int = 30_000
    messages: int = -1
    """-1: however many."""


DEFAULT_BOUNDS = LagBounds()


class Follower:
    """What a leader knows of one follower: all of it from the follower's fetches."""

    __slots__ = (
        "_asked_ms",
        "_leader_end_then",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "in_sync",
        "joining",
        "refusals",
        "start_offset",
    )

    def __init__(self, caught_up_ms: int = LONG_AGO_MS) -> None:
        self.end_offset = UNKNOWN_OFFSET
        """It has everything below: the offset of its last fetch."""
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        """Of which life of its broker all this is known."""
        self.caught_up_ms = caught_up_ms
        """When it last had all that the leader had then."""
        self.in_sync = False
        """Whether it is, or is proposed to be."""
        self.refusals = 0
        """How often the controller would not have it in sync."""
        self.joining = False
        """Not in sync, but close behind: it is waited for, or it would never catch up with a busy leader."""
        self._asked_ms = LONG_AGO_MS
        self._leader_end_then = 2**62

    def fetched(self, fetch_offset: int, leader_end: int, now_ms: int) -> None:
        """It asks for `fetch_offset`, so it has all before."""
        if fetch_offset < self.end_offset:
            # It came back with less, as after a power failure: what it once had counts for nothing now.
            self.caught_up_ms = self._asked_ms = LONG_AGO_MS
        self.end_offset = fetch_offset
        if fetch_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif fetch_offset >= self._leader_end_then:
            # It has all that was there when it asked before; a busy leader has more by the time of each fetch.
            self.caught_up_ms = max(self.caught_up_ms, self._asked_ms)
        self._asked_ms = now_ms
        self._leader_end_then = leader_end

    def still_at_the_end(self, now_ms: int) -> None:
        """It asked once more, and nothing has come to the log since it had all of it."""
        self.caught_up_ms = self._asked_ms = now_ms

    def keeps_up(self, leader_end: int, now_ms: int, bounds: LagBounds) -> bool:
        if 0 <= bounds.messages < leader_end - self.end_offset:
            return False
        return self.end_offset >= leader_end or now_ms - self.caught_up_ms <= bounds.time_ms


@dataclass(frozen=True, slots=True)
class InSync:
    """The in-sync replicas: those the controller has confirmed, and those a proposal on its way would make them."""

    committed: tuple[int, ...]
    proposed: tuple[int, ...] | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        if self.proposed is None:
            return self.committed
        return self.committed + tuple(each for each in self.proposed if each not in self.committed)

    @property
    def pending(self) -> bool:
        return self.proposed is not None

    def propose(self, replicas: tuple[int, ...]) -> InSync:
        assert self.proposed is None, "one proposal at a time"
        return replace(self, proposed=replicas)

    def confirm(self, replicas: tuple[int, ...]) -> InSync:
        """The controller says that these are in sync, whatever was proposed."""
        return InSync(replicas)

    def withdraw(self) -> InSync:
        """The controller refused, and nothing has changed."""
        return InSync(self.committed)


def safe_end(own_end: int, waited_for: Iterable[Follower]) -> int:
    """The offset below which everyone who is waited for has everything; -1 if somebody's end is not known."""
    for follower in waited_for:
        own_end = min(own_end, follower.end_offset)
    return own_end


def may_join(follower: Follower, high_watermark: int, epoch_start: int) -> bool:
    """Whether it has all that is safe, and nothing that the present leader does not have."""
    return follower.end_offset >= high_watermark and follower.end_offset >= epoch_start


def fallen_behind(
    isr: Iterable[int], followers: Mapping[int, Follower], leader_end: int, now_ms: int, bounds: LagBounds
) -> list[int]:
    """Those in sync who have not kept up. The leader is none of its followers and never among them."""
    return [each for each in isr if (found := followers.get(each)) and not found.keeps_up(leader_end, now_ms, bounds)]
