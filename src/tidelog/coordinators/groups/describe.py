"""How classic groups, and ids that only have offsets, are shown: DescribeGroups (v0-6) and ListGroups (v0-5).

DescribeGroups v6 says that a group is not there, where older versions show a Dead one · ListGroups v4 and v5 filter by
state and by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic_group import ClassicGroup, GroupState
from tidelog.errors import ErrorCode
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tidelog.wire.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from tidelog.wire.messages.list_groups import ListGroupsRequest

CLASSIC = "classic"


def described(group: ClassicGroup) -> DescribedGroup:
    """What members want and own is shown while it is settled; in a rebalance it means nothing."""
    settled = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if settled else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if settled else b"",
                member_assignment=member.assignment if settled else b"",
            )
            for member in group.members.values()
        ],
    )


def missing(group_id: str, version: int, message: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
        error_message=message if version >= 6 else None,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


def is_wanted(group: ListedGroup, request: ListGroupsRequest) -> bool:
    """Kafka compares both without regard to case."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return (not states or group.group_state.lower() in states) and (not types or group.group_type.lower() in types)
