"""Mirrors the groups that this broker coordinates below /consumers, where ZooKeeper's clients can watch them.

It looks on at the coordinator's logs and shows what is safe, a little later than the coordinator knows it: one round
after the other, each with the newest state of the groups that have changed. A slow store makes rounds fewer, never
queues longer: what waits is the names of groups. Nothing that fails here reaches the coordinator; it is told in the
log once and tried again after a pause, from what the store has then.

When a partition is taken over, all its groups are compared with the tree, and groups that are in it only are removed.
When it is given up, our ephemeral nodes go; committed offsets stay for the next coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.broker.group_claims import Claim, Contested, GroupClaims, NotLeading
from tidelog.controller.image import OFFSETS_TOPIC
from tidelog.coordinators.groups.registry_log import FollowedLog
from tidelog.coordinators.groups.registry_tree import (
    NODES_PER_GROUP_MAX,
    Unfit,
    Wanted,
    batches,
    check_group,
    done,
    wanted,
    wanted_offsets,
)
from tidelog.znodes.errors import (
    BadVersion,
    ConnectionLost,
    MultiError,
    NodeExists,
    NodeFormatError,
    NoNode,
    NotEmpty,
    SessionExpired,
    ZnodeError,
)
from tidelog.znodes.store import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.clock import Clock
    from tidelog.coordinators.groups.registry_log import Changed
    from tidelog.coordinators.groups.registry_tree import Batch, Plan
    from tidelog.coordinators.runtime import StateLog
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

GROUPS_PER_ROUND = 200
MULTIS_IN_FLIGHT = 4
ROUND_PAUSE_S = 0.05
"""Between rounds: commits that come meanwhile cost one write."""
RETRY_PAUSE_S = 1.0
RACES_IN_A_ROW = 5
"""A node that is not as it was read is nothing to speak of when coordinators change, unless it happens again."""
RELEASES_AT_ONCE = 50


@dataclass(slots=True, eq=False)
class _Led:
    """A partition that this broker leads."""

    partition: int
    log: FollowedLog
    owning: set[str]
    """Groups of which this broker may have ephemeral nodes."""
    claims: dict[str, Claim] = field(default_factory=dict)
    held_back: set[str] = field(default_factory=set)
    """Groups that failed, and wait for the pause to end."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Groups that cannot be shown, and why."""
    failures: Counter[str] = field(default_factory=Counter)
    """How often in a row each group has failed."""
    swept: int = 0
    """The load after which groups that are only in the tree were last looked for."""
    sweep_held_back: bool = False


class GroupRegistry:
    """Fits `coordinators.coordinator.Onlooker`."""

    def __init__(
        self,
        znodes: ZnodeStore,
        broker_id: int,
        clock: Clock,
        partition_of: Callable[[str], int | None],
        *,
        round_pause_s: float = ROUND_PAUSE_S,
        retry_pause_s: float = RETRY_PAUSE_S,
    ) -> None:
        """`partition_of` tells which partition a group belongs to."""
        self._znodes = znodes
        self._claims = GroupClaims(znodes, broker_id, OFFSETS_TOPIC)
        self._clock = clock
        self._partition_of = partition_of
        self._round_pause_s = round_pause_s
        self._retry_pause_s = retry_pause_s
        self._led: dict[int, _Led] = {}
        self._leaving: dict[int, set[str]] = {}
        """Groups of partitions that were given up, whose ephemeral nodes are to go."""
        self._session_id = znodes.session_id
        self._news = asyncio.Event()
        self._retry: asyncio.TimerHandle | None = None
        self._complained = False
        self._in_flight = asyncio.Semaphore(MULTIS_IN_FLIGHT)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._znodes.add_listener(self._on_session)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="group-registry")

    async def stop(self) -> None:
        """Ephemeral nodes are left to the end of the session."""
        self._znodes.remove_listener(self._on_session)
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- what happens to the coordinator, and to the session ---

    def follow(self, partition: int, log: StateLog) -> StateLog:
        followed = FollowedLog(log, self._news.set)
        self._led[partition] = _Led(partition, followed, self._leaving.pop(partition, set()))
        return followed

    def resign(self, partition: int) -> None:
        led = self._led.pop(partition, None)
        if led is not None and led.owning:
            led.owning |= self._leaving.get(partition, set())
            self._leaving[partition] = led.owning  # the same set: a write that is under way may add to it
            self._news.set()

    def _on_session(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            return
        if self._znodes.session_id != self._session_id:
            self._session_id = self._znodes.session_id
            self._leaving.clear()
            for led in self._led.values():
                self._begin_anew(led)
        self._news.set()

    def _begin_anew(self, led: _Led) -> None:
        """Nothing is certain about the partition's nodes any more."""
        led.claims.clear()
        led.swept = 0
        if led.log.ready:
            for group_id in led.log.book:
                led.log.touch(group_id)

    # --- rounds ---

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._znodes.state is not SessionState.CONNECTED:
                continue  # there is news when it is connected again
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - the task's top frame: groups must not suffer from their mirror
                self._complain(error, traceback=True)
                for led in self._led.values():
                    self._begin_anew(led)
                await asyncio.sleep(self._retry_pause_s)
            await asyncio.sleep(self._round_pause_s)

    async def _round(self) -> None:
        for partition in list(self._leaving):
            await self._release(partition)
        for led in list(self._led.values()):
            if led.log.ready:
                await self._sweep(led)
        room = GROUPS_PER_ROUND
        mirroring = []
        for partition, led in list(self._led.items()):
            changed = dict(led.log.take_touched(room)) if led.log.ready and room else {}
            if changed:
                room -= len(changed)
                del self._led[partition]  # last in the next round, so that a busy one leaves room to the others
                self._led[partition] = led
                mirroring.append(self._mirror(led, changed))
        await _all(mirroring)
        if not room:
            self._news.set()

    async def _mirror(self, led: _Led, changed: dict[str, Changed]) -> None:
        wanting = {group_id: slots for group_id, slots in changed.items() if self._may_show(led, group_id)}
        unclaimed = [group_id for group_id in wanting if not self._is_claimed(led, group_id)]
        await self._claim(led, unclaimed)
        wanting.update(dict.fromkeys(unclaimed))  # whatever has changed, they are compared whole
        plans: list[Plan] = []
        for group_id, slots in wanting.items():
            claim = led.claims.get(group_id)
            if claim is not None and led.log.ready:
                plans.append(self._plan(led, claim, slots))
        await _all([self._write(led, batch) for batch in batches(plans)])
        for group_id in wanting.keys() - led.held_back:
            led.failures.pop(group_id, None)
        if self._complained and not led.held_back and plans:
            self._complained = False
            logger.info("groups are mirrored again")

    def _may_show(self, led: _Led, group_id: str) -> bool:
        if group_id in led.held_back:
            return False
        try:
            check_group(group_id)
        except Unfit as reason:
            self._note_unfit(led, group_id, reason)
            return False
        return True

    def _is_claimed(self, led: _Led, group_id: str) -> bool:
        claim = led.claims.get(group_id)
        return claim is not None and claim.session_id == self._znodes.session_id

    def _plan(self, led: _Led, claim: Claim, slots: Changed) -> Plan:
        """Compares what the group has with what it should have, and notes that it may own ephemeral nodes now."""
        book, group_id = led.log.book, claim.group_id
        if slots is not None and claim.have and len(claim.have) + len(slots) < NODES_PER_GROUP_MAX:
            offsets = {slot: offset for slot in slots if (offset := book.offset(group_id, slot)) is not None}
            return claim.plan(wanted_offsets(group_id, offsets), whole=False)
        view = book.view(group_id, self._clock.now_ms())
        if view is None:
            led.unfit.pop(group_id, None)
            return claim.farewell()
        want: dict[str, Wanted] = {}
        try:
            want = wanted(view)
        except Unfit as reason:
            self._note_unfit(led, group_id, reason)
        else:
            led.unfit.pop(group_id, None)
        if view.members:
            led.owning.add(group_id)
        return claim.plan(want, whole=True)

    # --- the store ---

    async def _claim(self, led: _Led, group_ids: list[str]) -> None:
        if not group_ids:
            return
        for group_id in group_ids:
            led.claims.pop(group_id, None)
        try:
            claims = await self._claims.take(led.partition, group_ids, led.log.book.__contains__)
        except Contested as error:
            self._failed(led, error.cause, group_ids if error.group_id is None else [error.group_id])
            self._again(led, group_ids)
        except (ZnodeError, NodeFormatError) as error:
            self._failed(led, error, group_ids)
        else:
            led.claims.update((claim.group_id, claim) for claim in claims)

    async def _write(self, led: _Led, batch: Batch) -> None:
        groups = [part.group_id for part in batch.parts]
        async with self._in_flight:
            claims = [led.claims.get(group_id) for group_id in groups]
            if not all(claim and claim.session_id == self._znodes.session_id for claim in claims):
                self._again(led, groups)  # an earlier part has failed, or the session
                return
            try:
                await self._znodes.multi(batch.operations)
            except MultiError as error:
                self._failed(led, error.cause, [batch.group_at(error.index)])
                self._again(led, groups)
                return
            except ZnodeError as error:
                self._failed(led, error, groups)
                return
        for claim, part in zip(claims, batch.parts, strict=True):
            assert claim is not None
            if part.operations[-1].path == part.fence.path:  # the group's own node: it was the last of it
                led.claims.pop(part.group_id, None)
                led.owning.discard(part.group_id)
            else:
                done(claim.have, part.operations, claim.session_id)

    async def _sweep(self, led: _Led) -> None:
        """Has groups looked at that are in the tree and should not be."""
        load = led.log.loads
        if led.swept == load or led.sweep_held_back:
            return
        if self._partition_of("") is None:  # this broker is told of topics a little after it is told to lead
            led.sweep_held_back = True
            self._bring_back_later()
            return
        for group_id in led.claims:
            led.log.touch(group_id)

        def is_left_over(group_id: str) -> bool:
            return self._partition_of(group_id) == led.partition and group_id not in led.log.book

        try:
            orphans = await self._claims.orphans(is_left_over)
        except ZnodeError as error:
            led.sweep_held_back = True
            self._failed(led, error, [])
            return
        led.swept = load
        for group_id in orphans:
            led.log.touch(group_id)

    async def _release(self, partition: int) -> None:
        group_ids = self._leaving.pop(partition, set())
        while group_ids and partition not in self._led:
            some = [group_ids.pop() for _ in range(min(len(group_ids), RELEASES_AT_ONCE))]
            released = await asyncio.gather(*map(self._release_one, some))
            if not all(released):
                group_ids.update(some)
                self._leaving.setdefault(partition, set()).update(group_ids)
                self._bring_back_later()
                return
        if partition in self._led:
            self._led[partition].owning |= group_ids

    async def _release_one(self, group_id: str) -> bool:
        """False if it is to be tried again."""
        try:
            await self._claims.release(group_id)
        except (ConnectionLost, SessionExpired) as error:
            self._complain(error)
            return False
        except ZnodeError as error:
            logger.debug("%r is not released: %s", group_id, error)  # somebody else has changed it: his it is
        return True

    # --- failures ---

    def _failed(self, led: _Led, error: Exception, group_ids: list[str]) -> None:
        """These groups are left alone for a while; then they are claimed and read again."""
        for group_id in group_ids:
            led.claims.pop(group_id, None)
            led.held_back.add(group_id)
            led.failures[group_id] += 1
        is_a_race = isinstance(error, (NotLeading, BadVersion, NoNode, NodeExists, NotEmpty))
        if not is_a_race or any(led.failures[group_id] >= RACES_IN_A_ROW for group_id in group_ids):
            self._complain(error)
        self._bring_back_later()

    def _again(self, led: _Led, group_ids: list[str]) -> None:
        for group_id in group_ids:
            if group_id not in led.held_back:
                led.log.touch(group_id)

    def _bring_back_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(self._retry_pause_s, self._bring_back)

    def _bring_back(self) -> None:
        self._retry = None
        for led in self._led.values():
            led.sweep_held_back = False
            held_back, led.held_back = led.held_back, set()
            for group_id in held_back:
                led.log.touch(group_id)
        self._news.set()

    def _complain(self, error: Exception, *, traceback: bool = False) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "groups cannot be mirrored below /consumers, which is tried again: %s",
                error,
                exc_info=error if traceback else None,
            )

    def _note_unfit(self, led: _Led, group_id: str, reason: Unfit) -> None:
        if group_id not in led.log.book:
            led.unfit.pop(group_id, None)
        elif led.unfit.get(group_id) != str(reason):
            led.unfit[group_id] = str(reason)
            logger.warning("group %.100r is not mirrored below /consumers: %s", group_id, reason)


async def _all(work: list[Coroutine[None, None, None]]) -> None:
    """Waits for all of it, even if some of it fails: rounds must not overlap."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if outcome is not None:
            raise outcome
