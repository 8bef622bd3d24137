"""What members ask can be written in every version, so that old brokers understand it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.client.groups.classic import ClassicMember, ClassicSettings
from tidelog.client.groups.commits import commit_request, fetch_request
from tidelog.client.groups.member import Ask, GroupMetadata, Interest
from tidelog.client.groups.subscriptions import assignment_bytes
from tidelog.client.offsets import OffsetAndMetadata
from tidelog.types import Offset, TopicPartition
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidelog.wire.declare import Message

T0, U1 = TopicPartition("t", 0), TopicPartition("u", 1)


def versions(kind: type[Message], last: int | None = None) -> list[int]:
    return list(range(kind.VERSIONS.first, (kind.VERSIONS.last if last is None else last) + 1))


def asked(member: ClassicMember) -> Message:
    action = member.next(0.0)
    assert isinstance(action, Ask)
    return action.request


def test_classic_members_speak_every_version() -> None:
    member = ClassicMember(ClassicSettings(group_id="g"))
    member.subscribe(Interest(frozenset({"t"})))
    for version in versions(JoinGroupRequest):
        request = asked(member)
        assert isinstance(request, JoinGroupRequest)
        found = decode(JoinGroupRequest, to_bytes(request, version), version)
        assert [protocol.name for protocol in found.protocols] == ["range", "cooperative-sticky"]
    reply = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="range", leader="other", member_id="me", members=[]
    )
    member.answered(reply, 0.0)
    for version in versions(SyncGroupRequest):
        found_sync = decode(SyncGroupRequest, to_bytes(asked(member), version), version)
        assert (found_sync.member_id, found_sync.generation_id) == ("me", 1)
    member.answered(SyncGroupResponse(error_code=0, assignment=assignment_bytes({"t": [0]})), 0.0)
    assert member.turn is not None


@pytest.mark.parametrize("version", versions(OffsetFetchRequest, 9))
def test_positions_are_asked_for_in_every_version_that_knows_names(version: int) -> None:
    request = fetch_request("g", [T0, U1], version)
    found = decode(OffsetFetchRequest, to_bytes(request, version), version)
    groups = (
        [(found.group_id, found.topics)] if version < 8 else [(each.group_id, each.topics) for each in found.groups]
    )
    ((group_id, topics),) = groups
    assert group_id == "g"
    assert topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in topics] == [("t", [0]), ("u", [1])]
    assert found.require_stable == (version >= 7)


@pytest.mark.parametrize("version", versions(OffsetCommitRequest, 9))
def test_positions_are_stored_in_every_version_that_knows_names(version: int) -> None:
    who = GroupMetadata("g", 3, "me")
    request = commit_request(who, {T0: OffsetAndMetadata(Offset(7), "note"), U1: OffsetAndMetadata(Offset(0))})
    found = decode(OffsetCommitRequest, to_bytes(request, version), version)
    assert (found.group_id, found.generation_id_or_member_epoch, found.member_id) == ("g", 3, "me")
    assert [topic.name for topic in found.topics] == ["t", "u"]
    assert found.topics[0].partitions[0].committed_offset == 7
