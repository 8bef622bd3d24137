"""How long one rebalance of a large group takes: the broker's own share of it, and as members see it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.group_load import Shape, form, members_of, settle, settled
from bench.group_members import ClassicMember
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from bench.group_members import Member
    from bench.group_wire import Wire

_SETTLED_WITHIN_S = 120.0
_AT_REST_S = 1.2
"""A broker may divide partitions only so often; a group that has been stable for a while is not held up by that."""


class Rebalance(NamedTuple):
    at_once_s: float
    """Members ask without pause: what is left is the broker and the way to it."""
    at_interval_s: float
    """Members learn of it by the heartbeats that they send anyway."""


async def rebalance(wire: Wire, protocol: str, members: int, topic: str, partitions: int, trials: int) -> Rebalance:
    """One member more comes to a group that is stable."""
    at_once = [await _at_once(wire, protocol, members, topic, partitions, number) for number in range(trials)]
    return Rebalance(min(at_once), await _at_interval(wire, protocol, members, topic, partitions, trials))


async def _at_once(wire: Wire, protocol: str, count: int, topic: str, partitions: int, number: int) -> float:
    *members, newcomer = members_of(wire, Shape(protocol, 1, count), number, topic, partitions)
    await form([members], partitions)
    await asyncio.sleep(_AT_REST_S)
    everybody = [*members, newcomer]
    for member in everybody:
        if isinstance(member, ClassicMember):
            member.round += 1  # with new metadata nobody is told that all stays as it is
    if isinstance(newcomer, ClassicMember):
        await newcomer.introduce()
        began = time.perf_counter()
        await asyncio.gather(*(member.join() for member in everybody))
    else:
        began = time.perf_counter()
        await newcomer.join()
    await settle(everybody, partitions)
    return time.perf_counter() - began


async def _at_interval(wire: Wire, protocol: str, count: int, topic: str, partitions: int, number: int) -> float:
    *members, newcomer = members_of(wire, Shape(protocol, 1, count), number, topic, partitions)
    await form([members], partitions)
    await asyncio.sleep(_AT_REST_S)
    everybody = [*members, newcomer]
    over = asyncio.Event()
    beating = [
        asyncio.create_task(_beat(member, member.interval_s * place / len(members), over))
        for place, member in enumerate(members)
    ]
    began = time.perf_counter()
    await newcomer.join()
    beating.append(asyncio.create_task(_beat(newcomer, newcomer.interval_s, over)))
    try:
        async with asyncio.timeout(_SETTLED_WITHIN_S):
            while not settled(everybody, partitions):  # noqa: ASYNC110 -- what is waited for is said by a hundred members
                await asyncio.sleep(0.002)
        return time.perf_counter() - began
    finally:
        over.set()
        await asyncio.gather(*beating)


async def _beat(member: Member, first_after_s: float, over: asyncio.Event) -> None:
    wait_s = first_after_s
    while True:
        try:
            await asyncio.wait_for(over.wait(), wait_s)
        except TimeoutError:
            wait_s = member.interval_s
        else:
            return
        code = await member.beat()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            await member.join()
        elif code is ErrorCode.NONE:
            await member.follow()
