"""Groups of both protocols: who is in them, who reads what, and how far they have come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tidelog.client.administration.asking import Asking, Coordinates, check_passing, outcome_of
from tidelog.client.administration.group_reading import (
    GroupDescription,
    committed_offsets,
    committed_request,
    described_classic,
    described_consumer,
)
from tidelog.client.errors import NotSupported, check, error_code, refusal
from tidelog.client.outcomes import Outcomes
from tidelog.errors import ErrorCode
from tidelog.types import BrokerId, TopicPartition
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.client.connection import Connection
    from tidelog.client.offsets import OffsetAndMetadata

# Later versions name topics by their id.
_NAMED_MAX: Final = 9
_SEVERAL_MEMBERS_SINCE: Final = 3

_NOT_OF_THE_NEW_PROTOCOL: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


class ListedGroup(NamedTuple):
    group_id: str
    type: str
    """Classic, Consumer, Share or Streams; empty when the broker is too old to say."""
    state: str
    """Such as Stable or Empty; empty when the broker is too old to say."""
    protocol_type: str
    """"consumer" for groups that read topics; others use groups for purposes of their own."""
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """By one of the two. `instance_id` is that of a static member."""

    member_id: str = ""
    instance_id: str | None = None

    def __str__(self) -> str:
        return self.instance_id or self.member_id


class GroupAdmin(Asking):
    async def list_groups(
        self,
        *,
        states: Sequence[str] = (),
        types: Sequence[Literal["classic", "consumer", "share", "streams"]] = (),
    ) -> list[ListedGroup]:
        """Of all brokers, by group id."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        replies = await self._ask_brokers(None, "listing groups", request, ListGroupsResponse, lambda r: r.error_code)
        return sorted(
            ListedGroup(group.group_id, group.group_type, group.group_state, group.protocol_type, broker)
            for broker, reply in replies.items()
            for group in reply.groups
        )

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Of either protocol. BrokerError(GROUP_ID_NOT_FOUND): there is no such group."""

        async def attempt(connection: Connection, coordinator: BrokerId) -> GroupDescription:
            about = f"group {group_id}"
            if ConsumerGroupDescribeRequest.API in connection.offered:
                asked = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
                for group in (await connection.send(asked, ConsumerGroupDescribeResponse)).groups:
                    if error_code(group.error_code) not in _NOT_OF_THE_NEW_PROTOCOL:
                        check(group.error_code, group.error_message, about)
                        return described_consumer(group, coordinator)
            reply = await connection.send(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
            for found in reply.groups:
                check(found.error_code, found.error_message, about)
                if found.group_state != "Dead":  # in old versions the word for what does not exist
                    return described_classic(found, coordinator)
            raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, about=about)

        return await self._at_coordinator(Coordinates.GROUP, group_id, "describing a group", attempt)

    async def describe_groups(self, group_ids: Iterable[str]) -> Outcomes[str, GroupDescription]:
        return await self._each(group_ids, self.describe_group)

    async def delete_group(self, group_id: str) -> None:
        """Together with its offsets. It must have no members."""

        async def attempt(connection: Connection, _coordinator: BrokerId) -> None:
            reply = await connection.send(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
            for result in reply.results:
                check(result.error_code, about=f"group {group_id}")

        await self._at_coordinator(Coordinates.GROUP, group_id, "deleting a group", attempt)

    async def delete_groups(self, group_ids: Iterable[str]) -> Outcomes[str, None]:
        """None: deleted."""
        return await self._each(group_ids, self.delete_group)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, for all partitions or those named; those without a commit are left out.

        With `stable`, waits for transactions that are about to commit offsets.
        """
        wanted = None if partitions is None else list(partitions)

        async def attempt(connection: Connection, _coordinator: BrokerId) -> dict[TopicPartition, OffsetAndMetadata]:
            version = connection.version_of(OffsetFetchRequest, _NAMED_MAX)
            request = committed_request(group_id, wanted, version, stable=stable)
            reply = await connection.send(request, OffsetFetchResponse, limit=_NAMED_MAX)
            return committed_offsets(reply, f"group {group_id}")

        return await self._at_coordinator(Coordinates.GROUP, group_id, "listing offsets of a group", attempt)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> Outcomes[TopicPartition, None]:
        """Moves a group that has no members, or none that reads these topics. None: done."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), wanted in offsets.items():
            offset, metadata, epoch = (wanted, "", -1) if isinstance(wanted, int) else wanted
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )

        async def attempt(connection: Connection, _coordinator: BrokerId) -> Outcomes[TopicPartition, None]:
            reply = await connection.send(request, OffsetCommitResponse, limit=_NAMED_MAX)
            answers = [
                (TopicPartition(topic.name, answer.partition_index), answer.error_code)
                for topic in reply.topics
                for answer in topic.partitions
            ]
            return _partition_outcomes(answers, f"group {group_id}")

        return await self._at_coordinator(Coordinates.GROUP, group_id, "altering offsets of a group", attempt)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """None: the group has no offset there any more. Topics that its members read are refused."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )

        async def attempt(connection: Connection, _coordinator: BrokerId) -> Outcomes[TopicPartition, None]:
            reply = await connection.send(request, OffsetDeleteResponse)
            check(reply.error_code, about=f"group {group_id}")
            answers = [
                (TopicPartition(topic.name, answer.partition_index), answer.error_code)
                for topic in reply.topics
                for answer in topic.partitions
            ]
            return _partition_outcomes(answers, f"group {group_id}")

        return await self._at_coordinator(Coordinates.GROUP, group_id, "deleting offsets of a group", attempt)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "removed by an administrator",
    ) -> Outcomes[MemberToRemove, None]:
        """Takes members out of a classic group, or (None) all of them. Those that live will join again."""
        if members is None:
            described = await self.describe_group(group_id)
            members = [MemberToRemove(each.member_id, each.instance_id) for each in described.members]
        chosen = list(members)
        if not chosen:
            return Outcomes()
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id, reason=reason)
                for each in chosen
            ],
        )

        async def attempt(connection: Connection, _coordinator: BrokerId) -> Outcomes[MemberToRemove, None]:
            if connection.version_of(LeaveGroupRequest) < _SEVERAL_MEMBERS_SINCE:
                raise NotSupported("the broker is too old to remove members: Kafka does since 2.4")
            reply = await connection.send(request, LeaveGroupResponse)
            check(reply.error_code, about=f"group {group_id}")
            check_passing((each.error_code for each in reply.members), f"group {group_id}")
            return Outcomes(
                (member, outcome_of(answer.error_code, None, f"member {member}", None))
                for member, answer in zip(chosen, reply.members, strict=False)
            )

        return await self._at_coordinator(Coordinates.GROUP, group_id, "removing members", attempt)


def _partition_outcomes(answers: Iterable[tuple[TopicPartition, int]], about: str) -> Outcomes[TopicPartition, None]:
    answers = list(answers)
    check_passing((code for _, code in answers), about)
    return Outcomes(
        (partition, outcome_of(code, None, f"{about}: partition {partition}", None)) for partition, code in answers
    )
