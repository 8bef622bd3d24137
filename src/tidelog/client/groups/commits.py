"""Stores and fetches the positions that a group keeps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.client.backoff import Deadline
from tidelog.client.errors import CommitFailed, TimedOut, check, error_code, refusal
from tidelog.client.groups.coordinator import MOVED, Line
from tidelog.client.offsets import OffsetAndMetadata
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import Offset, TopicPartition
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tidelog.client.cluster import Cluster
    from tidelog.client.groups.coordinator import Coordinator
    from tidelog.client.groups.member import GroupMetadata

# Later versions name topics by their id.
_NAMED_MAX: Final = 9
_SEVERAL_GROUPS_SINCE: Final = 8
_STABLE_SINCE: Final = 7

_BEHIND: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH}
)
"""The group and this member are not in the same generation; they may be in a moment."""

_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class Commits:
    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        group_id: str,
        who: Callable[[], GroupMetadata | None],
        catch_up: Callable[[GroupMetadata], Awaitable[bool]],
    ) -> None:
        """`who` commits: None if it should be a member and is none now.

        `catch_up` waits for news of the group; false if they mean that it is too late to commit as this member.
        """
        self._cluster = cluster
        self._coordinator = coordinator
        self._about = f"group {group_id}"
        self._group_id = group_id
        self._who = who
        self._catch_up = catch_up
        # One at a time: of two commits that overtake each other the older would stay.
        self._storing = asyncio.Lock()

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline | None = None
    ) -> None:
        """CommitFailed: the group has moved on. BrokerError: the broker does not take it. TimedOut: it may have."""
        if not offsets:
            return
        deadline = deadline or Deadline(self._cluster.config.default_api_timeout_ms)
        async with self._storing:
            try:
                async with asyncio.timeout(deadline.remaining_s):
                    tries = 0
                    while not await self._store(offsets, deadline):
                        await asyncio.sleep(self._cluster.backoff.delay_s(tries))
                        tries += 1
            except TimeoutError:
                raise TimedOut(f"committing did not succeed within {deadline.timeout_ms} ms") from None

    async def _store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline) -> bool:
        """False: the member has caught up with its group, and should try again."""
        who = self._who()
        if who is None:
            # Without a name it would pass for somebody who reads without the group.
            raise self._too_late("this consumer is not in it")

        async def attempt() -> None:
            reply = await self._coordinator.ask(
                Line.POSITIONS, commit_request(who, offsets), OffsetCommitResponse, limit=_NAMED_MAX
            )
            for topic in reply.topics:
                for answer in topic.partitions:
                    if error_code(answer.error_code) in MOVED:
                        await self._coordinator.moved(Line.POSITIONS)
                    check(answer.error_code, about=f"committing {topic.name}-{answer.partition_index}")

        try:
            await self._cluster.retrying(f"committing for {self._about}", attempt, deadline)
        except BrokerError as error:
            if error.code in _BEHIND and await self._catch_up(who):
                return False
            if error.code in _BEHIND | _OUT:
                raise self._too_late(error.code.name) from error
            raise
        return True

    def _too_late(self, why: str) -> CommitFailed:
        return CommitFailed(
            f"{self._about} has moved on ({why}): partitions were or will be given to other members, who go on from "
            "the last commit. Ask for records again to learn what is still yours; if that came too late, raise "
            "max_poll_interval_ms or take fewer records at once"
        )

    async def committed(
        self, partitions: Iterable[TopicPartition], deadline: Deadline | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """None: the group has committed nothing for it."""
        wanted = list(partitions)
        if not wanted:
            return {}

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            return await self._fetch(wanted)

        return await self._cluster.retrying(f"fetching positions of {self._about}", attempt, deadline)

    async def _fetch(self, wanted: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        version = await self._coordinator.version_of(Line.POSITIONS, OffsetFetchRequest, _NAMED_MAX)
        request = fetch_request(self._group_id, wanted, version)
        reply = await self._coordinator.ask(Line.POSITIONS, request, OffsetFetchResponse, limit=_NAMED_MAX)
        codes = [reply.error_code, *(group.error_code for group in reply.groups)]
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
        answers: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = []
        answers += [(topic.name, answer) for topic in reply.topics for answer in topic.partitions]
        answers += [
            (topic.name, answer) for group in reply.groups for topic in group.topics for answer in topic.partitions
        ]
        for name, answer in answers:
            codes.append(answer.error_code)
            if answer.committed_offset >= 0:
                found[TopicPartition(name, answer.partition_index)] = OffsetAndMetadata(
                    Offset(answer.committed_offset), answer.metadata or "", answer.committed_leader_epoch
                )
        for code in filter(None, codes):
            if error_code(code) in MOVED:
                await self._coordinator.moved(Line.POSITIONS)
            raise refusal(code, about=self._about)
        return found


def commit_request(who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def fetch_request(group_id: str, wanted: Iterable[TopicPartition], version: int) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in wanted:
        topics.setdefault(topic, []).append(partition)
    # Positions that a transaction is about to replace are waited for: else what it has read would be read again.
    stable = version >= _STABLE_SINCE
    if version < _SEVERAL_GROUPS_SINCE:
        named = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
        return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=stable)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
    )
    return OffsetFetchRequest(groups=[group], require_stable=stable)
