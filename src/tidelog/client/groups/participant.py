"""A consumer's part in a group: it takes turns, tells listeners, commits, and leaves."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.backoff import Deadline
from tidelog.client.errors import ClientError
from tidelog.client.groups.classic import ClassicMember, ClassicSettings
from tidelog.client.groups.commits import Commits
from tidelog.client.groups.coordinator import Coordinator
from tidelog.client.groups.listener import RebalanceListener
from tidelog.client.groups.member import GroupMetadata, Member
from tidelog.client.groups.membership import Membership, Presence
from tidelog.client.groups.modern import ModernMember, ModernSettings
from tidelog.client.offsets import OffsetAndMetadata
from tidelog.errors import BrokerError

if TYPE_CHECKING:
    import re
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tidelog.client.background import Background
    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ConsumerConfig
    from tidelog.types import Offset, TopicPartition

log = logging.getLogger(__name__)

_COMMIT_BEFORE_GIVING_UP_MS: Final = 10_000
"""The rest of the group waits meanwhile."""

_FAREWELL_WHEN_CANCELLED_S: Final = 1.0
"""Whoever is cancelled does not want to wait, but a group that hears of it need not wait for the session to end."""


class Wish(NamedTuple):
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None


class Reading(NamedTuple):
    """What a group has to do with its consumer's reading."""

    positions: Callable[[], dict[TopicPartition, Offset]]
    epoch_of: Callable[[TopicPartition], int]
    """Of the last record before the position."""
    take_over: Callable[[Iterable[TopicPartition]], None]
    """Reads these from now on, from where the group has committed."""
    give_up: Callable[[Iterable[TopicPartition]], None]
    call: Callable[[], None]
    """The application should come: see `Participant.attention`."""


class Participant:
    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, group_id: str, background: Background, reading: Reading
    ) -> None:
        self.attention = False
        """Whether `attend` has something to do: worth one look at every record."""
        self.presence = Presence()
        self.wish = Wish()
        self._cluster = cluster
        self._config = config
        self._group_id = group_id
        self._background = background
        self._reading = reading
        self._listener = RebalanceListener()
        self._coordinator = Coordinator(cluster, group_id)
        self._commits = Commits(cluster, self._coordinator, group_id, self._committer, self._catch_up)
        self._membership: Membership | None = None
        self._attending = False
        self._auto_commit: asyncio.TimerHandle | None = None
        self._auto_commit_due = False
        self._last_committed: dict[TopicPartition, Offset] = {}

    @property
    def metadata(self) -> GroupMetadata:
        membership = self._membership
        return GroupMetadata(self._group_id) if membership is None else membership.member.metadata

    @property
    def subscribed(self) -> bool:
        return self._membership is not None

    def start(self) -> None:
        if self._config.enable_auto_commit:
            self._wind_up()

    # In and out

    def subscribe(self, wish: Wish, listener: RebalanceListener | None) -> None:
        self._listener = listener or RebalanceListener()
        self.wish = wish
        if self._membership is not None:
            self._membership.subscribe(wish)
            return
        self._membership = Membership(
            self._cluster, self._coordinator, self._config, self._member(), self.presence, self._called
        )
        self._membership.start(self._background, wish)

    def _member(self) -> Member:
        config = self._config
        if config.group_protocol == "consumer":
            return ModernMember(
                ModernSettings(
                    group_id=self._group_id,
                    member_id=secrets.token_urlsafe(16),
                    instance_id=config.group_instance_id,
                    rebalance_timeout_ms=config.max_poll_interval_ms,
                    assignor=config.group_remote_assignor,
                    rack=config.client_rack or None,
                )
            )
        return ClassicMember(
            ClassicSettings(
                group_id=self._group_id,
                instance_id=config.group_instance_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                assignors=config.assignors,
                rack=config.client_rack or None,
            )
        )

    async def unsubscribe(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Commits if that is to happen by itself, tells the listener, leaves."""
        membership = self._membership
        if membership is None:
            await self._commit_last(positions)
            return
        member = membership.member
        farewell_limit_s: float | None = None
        try:
            await membership.stop()
            lost = member.turn is not None and member.turn.lost
            if not lost:
                await self._commit_last(positions)
            if member.owned:
                tell = self._listener.on_lost if lost else self._listener.on_revoked
                await _told(tell(member.owned))
        except asyncio.CancelledError:
            farewell_limit_s = _FAREWELL_WHEN_CANCELLED_S
            raise
        finally:
            self._reading.give_up(member.owned)
            self._membership = None
            self.wish = Wish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(farewell_limit_s):
                    await membership.leave()

    async def close(self) -> None:
        """Leaves nothing behind; whoever should leave the group first has done so."""
        if self._auto_commit is not None:
            self._auto_commit.cancel()
        if self._membership is not None:
            await self._membership.stop()
        await self._coordinator.close()

    # Turns

    def _called(self) -> None:
        self.attention = True
        self._reading.call()

    async def attend(self) -> None:
        """What only the application itself may do, since it must not be at anything else meanwhile."""
        if self._attending:
            return  # a listener asks for records
        self.attention = False
        self._attending = True
        try:
            membership = self._membership
            if membership is not None:
                while membership.member.turn is not None:
                    await self._take_turn(membership)
                membership.came_back()
            if self._auto_commit_due:
                self._auto_commit_due = False
                self._wind_up()
                self.commit_in_background(self._reading.positions(), by_itself=True)
            if membership is not None and membership.failure is not None:
                self.attention = True  # it will not get better
                raise membership.failure
        except BaseException:
            self.attention = True
            raise
        finally:
            self._attending = False

    async def _take_turn(self, membership: Membership) -> None:
        turn = membership.member.begin_turn()
        begun = False
        try:
            if turn.revoked and not turn.lost:
                positions = self._reading.positions()
                await self._commit_last({at: positions[at] for at in turn.revoked if at in positions})
            begun = True
            try:
                if turn.revoked:
                    tell = self._listener.on_lost if turn.lost else self._listener.on_revoked
                    await _told(tell(turn.revoked))
            finally:
                self._reading.give_up(turn.revoked)
                self._reading.take_over(turn.assigned)
                for partition in turn.assigned:
                    self._last_committed.pop(partition, None)
            if turn.assigned:
                await _told(self._listener.on_assigned(turn.assigned))
        finally:
            membership.member.end_turn(done=begun)
            membership.wake()

    async def _catch_up(self, since: GroupMetadata) -> bool:
        return self._membership is not None and await self._membership.catch_up(since)

    # Commits

    def _committer(self) -> GroupMetadata | None:
        metadata = self.metadata
        return None if self.subscribed and metadata.generation_id <= 0 else metadata

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline | None) -> None:
        await self._commits.commit(offsets, deadline)
        self._last_committed |= {partition: position.offset for partition, position in offsets.items()}

    def to_commit(self, positions: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetAndMetadata]:
        """With the epochs, by which the next reader will see whether the partition still holds what was read."""
        epoch_of = self._reading.epoch_of
        return {at: OffsetAndMetadata(offset, leader_epoch=epoch_of(at)) for at, offset in positions.items()}

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._commits.committed(partitions)

    def commit_in_background(
        self, positions: Mapping[TopicPartition, Offset], *, by_itself: bool = False
    ) -> asyncio.Task[None]:
        offsets = self.to_commit({at: offset for at, offset in positions.items() if self._is_news(at, offset)})
        work = self._commit_quietly(offsets) if by_itself else self.commit(offsets, None)
        return self._background.start(work, "tidelog commit")

    async def _commit_last(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Before partitions are given up: as much as can be done, for as long as others may be made to wait."""
        if self._config.enable_auto_commit:
            offsets = self.to_commit({at: offset for at, offset in positions.items() if self._is_news(at, offset)})
            await self._commit_quietly(offsets, Deadline(_COMMIT_BEFORE_GIVING_UP_MS))

    def _is_news(self, partition: TopicPartition, offset: Offset) -> bool:
        return self._last_committed.get(partition) != offset

    async def _commit_quietly(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline | None = None
    ) -> None:
        try:
            await self.commit(offsets, deadline)
        except (ClientError, BrokerError) as error:
            log.warning("committing by itself failed, the records since the last commit may come again: %s", error)

    def _wind_up(self) -> None:
        loop = asyncio.get_running_loop()
        self._auto_commit = loop.call_later(self._config.auto_commit_interval_ms / 1000, self._auto_commit_time)

    def _auto_commit_time(self) -> None:
        self._auto_commit_due = True
        self._called()


async def _told(answer: Awaitable[None] | None) -> None:
    if inspect.isawaitable(answer):
        await answer
