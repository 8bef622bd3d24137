"""Groups that only keep alive: formed at once, then every member reports at its interval until the time is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bench.group_members import ClassicMember, ConsumerMember
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.group_members import Member
    from bench.group_wire import Wire

_FORMING_AT_ONCE = 300
"""Members, not groups."""

_PAUSE_S = 0.005


class Shape(NamedTuple):
    protocol: str
    groups: int
    members: int
    """In each group."""

    def __str__(self) -> str:
        return f"{self.groups:,} groups of {self.members:,}, {self.protocol}"


@dataclass(slots=True)
class Beats:
    """What came of the heartbeats."""

    latencies_s: list[float] = field(default_factory=list)
    late_s: float = 0.0
    """The most that the generator itself was behind."""
    answers: Counter[ErrorCode] = field(default_factory=Counter)

    @property
    def missed(self) -> int:
        """Members that the broker threw out."""
        gone = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
        return sum(self.answers[code] for code in gone)

    @property
    def odd(self) -> int:
        """Answers that are neither good nor the end of a session."""
        return sum(self.answers.values()) - self.answers[ErrorCode.NONE] - self.missed

    def latency_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000


def members_of(wire: Wire, shape: Shape, group: int, topic: str, partitions: int) -> list[Member]:
    name = f"bench-{shape.protocol}-{group}"
    first = group * shape.members
    places = [wire.place(first + number) for number in range(shape.members)]
    if shape.protocol == "classic":
        return [ClassicMember(place, name, topic, partitions) for place in places]
    return [ConsumerMember(place, name, f"{name}-{number}", topic) for number, place in enumerate(places)]


async def form(groups: Sequence[Sequence[Member]], partitions: int) -> float:
    """Has everybody join, and gives how long it took."""
    began = time.perf_counter()
    room = asyncio.Semaphore(max(_FORMING_AT_ONCE // len(groups[0]), 1))

    async def form_one(members: Sequence[Member]) -> None:
        async with room:
            await asyncio.gather(*(member.join() for member in members))
            await settle(members, partitions)

    await asyncio.gather(*(form_one(members) for members in groups))
    return time.perf_counter() - began


async def settle(members: Sequence[Member], partitions: int) -> None:
    """Heartbeats in quick succession until nothing is left to be done."""
    while not settled(members, partitions):
        await asyncio.gather(*(catch_up(member) for member in members))
        await asyncio.sleep(_PAUSE_S)


def settled(members: Sequence[Member], partitions: int) -> bool:
    """Whether all are in one generation, every partition has exactly one owner, and nobody has too many."""
    classic = [member for member in members if isinstance(member, ClassicMember)]
    if classic:
        return len({member.generation for member in classic}) == 1
    newer = [member for member in members if isinstance(member, ConsumerMember)]
    owned = [place for member in newer for place in member.owned]
    most = -(-partitions // len(newer))
    return (
        len({member.epoch for member in newer}) == 1
        and len(owned) == len(set(owned)) == partitions
        and max(len(member.owned) for member in newer) <= most
    )


async def catch_up(member: Member) -> None:
    code = await member.beat()
    if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
        if code is ErrorCode.REBALANCE_IN_PROGRESS or isinstance(member, ConsumerMember):
            await member.follow()
        return
    await member.join()


async def keep_alive(members: Sequence[Member], seconds: float) -> Beats:
    """Every member at its interval, each at a moment of its own."""
    beats = Beats()
    chance = random.Random(1)
    until = time.perf_counter() + seconds
    await asyncio.gather(
        *(_keep_one_alive(member, chance.random() * member.interval_s, until, beats) for member in members)
    )
    return beats


async def _keep_one_alive(member: Member, first_after_s: float, until: float, beats: Beats) -> None:
    due = time.perf_counter() + first_after_s
    while due < until:
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        sent = time.perf_counter()
        beats.late_s = max(beats.late_s, sent - due)
        code = await member.beat()
        beats.latencies_s.append(time.perf_counter() - sent)
        beats.answers[code] += 1
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            await member.follow()
        elif code is not ErrorCode.NONE:
            await member.join()
        # A client counts from the answer, so that one that is late does not make the next one early.
        due += member.interval_s
