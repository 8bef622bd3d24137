"""Members that break the rules, and rounds that go wrong: each gets the error Kafka gives, and the group lives on."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from group_topics import create_topic
from raw_members import RawMember

from tidelog.errors import ErrorCode
from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from group_fixtures import GroupBroker, StartGroupBroker

pytest_plugins = ["group_fixtures"]


class Members:
    """Raw members of one group."""

    def __init__(self, broker: GroupBroker, stack: ExitStack) -> None:
        self._broker = broker
        self._stack = stack
        unique = uuid.uuid4().hex[:12]
        self._group = f"group-{unique}"
        self._topic = create_topic(broker.bootstrap, f"topic-{unique}", 1)
        self.stranger().find_coordinator()

    def stranger(self, rebalance_ms: int = 60_000) -> RawMember:
        member = self._stack.enter_context(RawMember(self._broker.bootstrap, self._group, self._topic))
        member.rebalance_ms = rebalance_ms
        return member

    def newcomer(self, rebalance_ms: int = 60_000) -> RawMember:
        """Has its id, and has not joined yet."""
        member = self.stranger(rebalance_ms)
        assert member.introduce() is ErrorCode.MEMBER_ID_REQUIRED
        return member

    def first(self, rebalance_ms: int = 60_000) -> RawMember:
        """The only member of a group that is stable."""
        member = self.newcomer(rebalance_ms)
        assert member.join().leader == member.member_id
        assert member.sync({member.member_id: b"everything"}).assignment == b"everything"
        return member

    def joined_pair(self, rebalance_ms: int = 60_000) -> tuple[RawMember, RawMember]:
        """Two members, of which the first is to say who gets what."""
        leader, follower = self.first(rebalance_ms), self.newcomer(rebalance_ms)
        waiting = follower.send_join()
        assert leader.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
        roster = leader.join()
        assert {member.member_id for member in roster.members} == {leader.member_id, follower.member_id}
        assert follower.receive_join(waiting).error_code == ErrorCode.NONE
        return leader, follower

    def pair(self) -> tuple[RawMember, RawMember]:
        """Two members of a group that is stable; the first leads."""
        leader, follower = self.joined_pair()
        waiting = follower.send_sync()
        assert leader.sync({leader.member_id: b"one", follower.member_id: b"two"}).assignment == b"one"
        assert follower.receive_sync(waiting).assignment == b"two"
        return leader, follower


@pytest.fixture
def members(group_broker: GroupBroker) -> Iterator[Members]:
    with ExitStack() as stack:
        yield Members(group_broker, stack)


def test_nobody_knows_a_stranger(members: Members) -> None:
    members.first()
    stranger = members.stranger()
    stranger.member_id = "nobody"
    stranger.generation = 1

    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_there_are_no_members_of_a_group_that_is_not_there(members: Members) -> None:
    stranger = members.stranger()
    stranger.member_id = "nobody"

    assert stranger.heartbeat(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync(generation=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.commit(1, generation=1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID


def test_generations_other_than_the_current_one_are_refused(members: Members) -> None:
    member = members.first()
    for wrong in (member.generation - 1, member.generation + 1):
        assert member.heartbeat(wrong) is ErrorCode.ILLEGAL_GENERATION
        assert member.sync(generation=wrong).error_code == ErrorCode.ILLEGAL_GENERATION
        assert member.commit(1, wrong) is ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat() is ErrorCode.NONE
    assert member.commit(1) is ErrorCode.NONE


def test_members_must_have_a_protocol_in_common(members: Members) -> None:
    member = members.first()
    stranger = members.stranger()

    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stranger.introduce(stranger.join_request(protocol_type="connect")) is refused
    assert stranger.introduce(stranger.join_request(protocols={"sticky": b""})) is refused
    assert stranger.introduce(stranger.join_request(protocols={})) is refused
    assert member.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("session_ms", [0, 999, 1_800_001, -1])
def test_sessions_have_bounds(members: Members, session_ms: int) -> None:
    stranger = members.stranger()
    request = stranger.join_request(session_ms=session_ms)
    assert stranger.introduce(request) is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_name(members: Members) -> None:
    stranger = members.stranger()
    stranger.group = ""

    assert stranger.introduce() is ErrorCode.INVALID_GROUP_ID
    assert stranger.heartbeat(1) is ErrorCode.INVALID_GROUP_ID


def test_whoever_leaves_is_gone(members: Members) -> None:
    leader, follower = members.pair()

    assert follower.leave() is ErrorCode.NONE
    assert follower.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(leader.join().members) == 1


def test_a_commit_during_a_round(members: Members) -> None:
    """Positions are taken while members are called together, and not between joining and being given a share."""
    leader, follower = members.pair()
    newcomer = members.newcomer()
    waiting = newcomer.send_join()
    assert leader.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    assert leader.commit(7) is ErrorCode.NONE
    joining = follower.send_join()
    leader.join()
    assert follower.receive_join(joining).error_code == newcomer.receive_join(waiting).error_code == ErrorCode.NONE
    assert leader.commit(8) is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.sync({leader.member_id: b"all"}).assignment == b"all"
    assert leader.commit(8) is ErrorCode.NONE


def test_a_leader_that_never_says_who_gets_what_is_thrown_out(members: Members) -> None:
    leader, follower = members.joined_pair(rebalance_ms=1000)

    assert follower.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    roster = follower.join()
    assert roster.leader == follower.member_id
    assert len(roster.members) == 1
    assert follower.sync({follower.member_id: b"all"}).assignment == b"all"
    assert leader.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_never_asks_for_its_share_is_thrown_out(members: Members) -> None:
    leader, follower = members.joined_pair(rebalance_ms=1000)

    assert leader.sync({leader.member_id: b"one", follower.member_id: b"two"}).assignment == b"one"
    assert leader.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    assert follower.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(leader.join().members) == 1


def test_a_thousand_members_join_at_once(members: Members) -> None:
    leader = members.first()
    crowd = [members.newcomer() for _ in range(999)]
    waiting = [member.send_join() for member in crowd]
    eventually(lambda: leader.comrades() == 1000, "all to have come", within_s=60)

    roster = leader.join()
    assert len({member.member_id for member in roster.members}) == 1000
    for member, sent in zip(crowd, waiting, strict=True):
        assert member.receive_join(sent).generation_id == roster.generation_id
    syncing = [member.send_sync() for member in crowd]
    shares = {member.member_id: member.member_id.encode() for member in roster.members}
    assert leader.sync(shares).assignment == leader.member_id.encode()
    for member, sent in zip(crowd, syncing, strict=True):
        reply = member.receive_sync(sent)
        assert (reply.error_code, reply.assignment) == (ErrorCode.NONE, member.member_id.encode())
    assert {member.heartbeat() for member in (leader, *crowd)} == {ErrorCode.NONE}


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_ends_while_members_are_called_together(own_group_broker: StartGroupBroker, ending: str) -> None:
    """What was agreed on last holds: the members that were there still are, and the round is held again."""
    broker = own_group_broker()
    with ExitStack() as stack:
        members = Members(broker, stack)
        leader, follower = members.pair()
        newcomer = members.newcomer()
        newcomer.send_join()
        assert leader.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
        if ending == "kill":
            broker.kill()
        else:
            broker.stop()
        broker.start()

        ours = [members.stranger() for _ in range(3)]
        for here, before in zip(ours, (leader, follower, newcomer), strict=True):
            here.member_id, here.generation = before.member_id, before.generation
        leader, follower, newcomer = ours
        assert leader.heartbeat() is ErrorCode.NONE
        assert follower.heartbeat() is ErrorCode.NONE
        newcomer.member_id = ""
        newcomer.introduce()
        waiting = newcomer.send_join()
        assert leader.heartbeat_until(ErrorCode.REBALANCE_IN_PROGRESS)
        joining = follower.send_join()
        roster = leader.join()
        assert len(roster.members) == 3
        assert follower.receive_join(joining).generation_id == roster.generation_id
        assert newcomer.receive_join(waiting).generation_id == roster.generation_id


# --- the newer protocol ---


def test_newer_members_say_who_they_are_when_they_join(members: Members) -> None:
    stranger = members.stranger()
    stranger.member_id = "me"

    assert stranger.report(0, topics=["t"]).error_code == ErrorCode.INVALID_REQUEST
    assert stranger.report(0, rebalance_ms=10_000).error_code == ErrorCode.INVALID_REQUEST
    refused = stranger.report(0, topics=["t"], rebalance_ms=10_000, assignor="mine")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    refused = stranger.report(0, topics=[], pattern="(", rebalance_ms=10_000)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_epochs_other_than_the_current_one_are_refused(members: Members) -> None:
    member = members.stranger()
    member.member_id = "me"
    joined = member.report(0, topics=[member.topic], rebalance_ms=10_000)
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_epoch > 0

    stranger = members.stranger()
    stranger.member_id = "nobody"
    assert stranger.report(joined.member_epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.report(joined.member_epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.commit(1, joined.member_epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert member.commit(1, joined.member_epoch) is ErrorCode.NONE
    assert member.report(joined.member_epoch).error_code == ErrorCode.NONE
    assert member.report(-1).error_code == ErrorCode.NONE
    assert member.report(joined.member_epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
