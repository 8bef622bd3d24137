"""Does what a member decides: asks the coordinator, looks topics up, keeps time, and watches over the application.

It runs beside the application, which only takes the member's turns (when it comes for records, so that it is never
interrupted) and is otherwise free to be slow, up to max_poll_interval_ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.client.errors import ClientError, error_code, refusal, worth_retrying
from tidelog.client.groups.coordinator import MOVED, Line
from tidelog.client.groups.member import Ask, Interest, KnownTopic, LookUp, Rest
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from tidelog.client.background import Background
    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ConsumerConfig
    from tidelog.client.groups.coordinator import Coordinator
    from tidelog.client.groups.member import GroupMetadata, Member
    from tidelog.wire.declare import Message

log = logging.getLogger(__name__)

_MISSING_TOPIC_CHECK_S: Final = 1.0
_LEAVE_SEVERAL_SINCE: Final = 3
_NOT_NOW: Final = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Presence:
    """How the application shows that it is alive: it is inside a call, or was since somebody last looked."""

    __slots__ = ("inside", "seen")

    def __init__(self) -> None:
        self.inside = 0
        self.seen = True


class Wish(Protocol):
    """What the application subscribed to."""

    @property
    def topics(self) -> frozenset[str]: ...

    @property
    def pattern(self) -> re.Pattern[str] | None: ...


class Membership:
    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        config: ConsumerConfig,
        member: Member,
        presence: Presence,
        notify: Callable[[], None],
    ) -> None:
        """`notify` is called when the application should come: there is a turn, or the end of all turns."""
        self.member = member
        self.failure: Exception | None = None
        self._cluster = cluster
        self._coordinator = coordinator
        self._config = config
        self._presence = presence
        self._notify = notify
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._wish: Wish | None = None
        self._watch_soon = asyncio.Event()
        self._asleep = False
        self._stopped = False
        self._seen_s = 0.0
        self._failures = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, background: Background, wish: Wish) -> None:
        self._seen_s = asyncio.get_running_loop().time()
        self.subscribe(wish)
        self._tasks = [
            background.start(self._run(), "tidelog group member"),
            background.start(self._watch(), "tidelog topics of a group"),
        ]

    def subscribe(self, wish: Wish) -> None:
        self._wish = wish
        if wish.pattern is None:
            self.member.subscribe(Interest(wish.topics))
        self._watch_soon.set()
        self.wake()

    def wake(self) -> None:
        """The member may have something to do: a turn was taken, the application came back."""
        self._changed.set()
        self._wake.set()

    def came_back(self) -> None:
        if self._asleep:
            self._asleep = False
            self._seen_s = asyncio.get_running_loop().time()
            self.member.wake_up()
            self.wake()

    async def stop(self) -> None:
        """Asks and watches no more; the member stays what it is."""
        self._stopped = True
        self._changed.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._coordinator.hang_up(Line.MEMBERSHIP)

    async def leave(self) -> None:
        """Tells the coordinator, so that others need not wait for the session to end. Failing to is no harm."""
        farewell = self.member.goodbye()
        if farewell is None:
            return
        try:
            await self._say(farewell)
        except (ClientError, BrokerError) as error:
            log.info("leaving the group failed, its coordinator will notice: %s", error)

    async def _say(self, farewell: Message) -> None:
        if isinstance(farewell, LeaveGroupRequest):
            version = await self._coordinator.version_of(Line.POSITIONS, LeaveGroupRequest)
            if version >= _LEAVE_SEVERAL_SINCE:
                farewell.member_id = ""
            else:
                farewell.members = []
            await self._coordinator.ask(Line.POSITIONS, farewell, LeaveGroupResponse)
        else:
            assert isinstance(farewell, ConsumerGroupHeartbeatRequest), "there are two ways to leave"
            await self._coordinator.ask(Line.POSITIONS, farewell, ConsumerGroupHeartbeatResponse)

    async def catch_up(self, since: GroupMetadata) -> bool:
        """Waits until the member knows more than it did; false if it is not what it was, or needs the application."""
        self.member.beat_soon()
        self.wake()
        while True:
            now = self.member.metadata
            if self.failure is not None or now.member_id != since.member_id or now.generation_id < since.generation_id:
                return False
            if now != since and self.member.may_commit:
                return True
            if self.member.held_up or self._stopped:
                return False
            self._changed.clear()
            await self._changed.wait()
            if self.member.metadata == since and self.member.may_commit and not self.member.held_up:
                return True

    # The member's task

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                now_s = asyncio.get_running_loop().time()
                if await self._overslept(now_s):
                    continue
                action = self.member.next(now_s)
                if isinstance(action, Rest):
                    self._tell()
                    await self._rest(action, now_s)
                else:
                    await self._act(action)
        except (ClientError, BrokerError) as error:
            self._fail(error)
        except Exception as error:
            log.exception("the group member cannot go on")
            self._fail(error)

    async def _rest(self, rest: Rest, now_s: float) -> None:
        until_s = rest.until_s
        if not self._asleep:
            until_s = min(until_s, max(now_s, self._seen_s + self._config.max_poll_interval_ms / 1000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if until_s == float("inf") else until_s):
                await self._wake.wait()

    async def _act(self, action: Ask | LookUp) -> None:
        try:
            if isinstance(action, LookUp):
                await self._look_up(action)
            else:
                await self._ask(action)
            self._failures = 0
        except (ClientError, BrokerError) as error:
            if not worth_retrying(error):
                raise
            log.log(logging.WARNING if self._failures == 0 else logging.DEBUG, "group coordinator: %s", error)
            wait_s = self._cluster.backoff.delay_s(self._failures)
            self._failures += 1
            await asyncio.sleep(wait_s)
            self.member.unanswered(asyncio.get_running_loop().time())
        self._changed.set()
        self._tell()

    async def _ask(self, action: Ask) -> None:
        reply = await self._coordinator.ask(
            Line.MEMBERSHIP, action.request, action.response, timeout_ms=action.timeout_ms
        )
        code = error_code(getattr(reply, "error_code", 0))
        if code in _NOT_NOW:
            if code in MOVED:
                await self._coordinator.moved(Line.MEMBERSHIP)
            raise refusal(code, about=f"group {self.member.metadata.group_id}")
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            log.warning(
                "another member of the group has the group_instance_id %s: waiting until it leaves or its session ends",
                self._config.group_instance_id,
            )
        self.member.answered(reply, asyncio.get_running_loop().time())

    async def _look_up(self, action: LookUp) -> None:
        if action.topic_ids and self._wish is not None and self._wish.pattern is not None:
            await self._cluster.refresh_all()
        else:
            await self._cluster.refresh(action.topics, create=self._config.allow_auto_create_topics)
        self._tell_topics()

    def _tell_topics(self) -> None:
        self.member.topics_known(
            {
                name: KnownTopic(topic.topic_id, len(topic.partitions))
                for name, topic in self._cluster.metadata.topics.items()
                if topic.partitions and not topic.error
            }
        )

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        if self.failure is None and self.member.failure is not None:
            self.failure = self.member.failure
        if self.failure is not None or self.member.turn is not None or self._asleep:
            self._notify()

    async def _overslept(self, now_s: float) -> bool:
        presence = self._presence
        if presence.seen or presence.inside:
            presence.seen = False
            self._seen_s = now_s
        elif not self._asleep and now_s - self._seen_s >= self._config.max_poll_interval_ms / 1000:
            log.warning(
                "the application has not asked for records for max_poll_interval_ms = %d: leaving the group until it "
                "does. Raise that, or have fewer records at once (max_poll_records)",
                self._config.max_poll_interval_ms,
            )
            self._asleep = True
            await self.leave()
            self.member.fall_asleep()
            self._tell()
            return True
        return False

    # The topics

    async def _watch(self) -> None:
        """Keeps up with topics that appear or grow: they change what the group has to divide."""
        try:
            while True:
                self._watch_soon.clear()
                wait_s = self._config.metadata_max_age_ms / 1000
                try:
                    if not await self._see_topics():
                        wait_s = min(wait_s, _MISSING_TOPIC_CHECK_S)
                except (ClientError, BrokerError) as error:
                    if not worth_retrying(error):
                        raise
                    log.debug("looking after the group's topics failed: %s", error)
                    wait_s = min(wait_s, _MISSING_TOPIC_CHECK_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._watch_soon.wait()
        except (ClientError, BrokerError) as error:
            self._fail(error)
        except Exception as error:
            log.exception("the group's topics cannot be watched")
            self._fail(error)

    async def _see_topics(self) -> bool:
        """False if some of those that were named are not there."""
        wish = self._wish
        assert wish is not None, "watching begins with a wish"
        if wish.pattern is not None:
            if await self._matched_by_coordinator():
                self.member.subscribe(Interest(pattern=wish.pattern.pattern))
            else:
                metadata = await self._cluster.refresh_all()
                matching = (
                    name
                    for name, topic in metadata.topics.items()
                    if not topic.internal and wish.pattern.fullmatch(name)
                )
                self.member.subscribe(Interest(frozenset(matching)))
            complete = True
        else:
            topics = wish.topics | self.member.watched
            await self._cluster.refresh(topics, create=self._config.allow_auto_create_topics)
            known = self._cluster.metadata.topics
            for name in sorted(wish.topics & known.keys()):
                if known[name].error and not known[name].error.retriable:
                    raise refusal(known[name].error, about=f"topic {name}")
            complete = all(name in known and known[name].partitions for name in wish.topics)
        self._tell_topics()
        self.wake()
        return complete

    async def _matched_by_coordinator(self) -> bool:
        if self._config.group_protocol != "consumer":
            return False
        version = await self._coordinator.version_of(Line.POSITIONS, ConsumerGroupHeartbeatRequest)
        return version >= 1
