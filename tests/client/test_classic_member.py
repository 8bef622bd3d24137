"""What a classic member does next, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from member_rig import Rig

from tidelog.client.groups.classic import ClassicMember, ClassicSettings, Phase
from tidelog.client.groups.member import Ask, Interest, KnownTopic, LookUp, Rest, Turn
from tidelog.client.groups.subscriptions import (
    assignment_bytes,
    by_topic,
    read_assignment,
    read_sticky_data,
    read_subscription,
    sticky_data,
    subscription_bytes,
)
from tidelog.errors import ErrorCode
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)


def new_member(assignors: tuple[str, ...] = EAGER, instance_id: str | None = None) -> ClassicMember:
    member = ClassicMember(
        ClassicSettings(group_id="g", assignors=assignors, instance_id=instance_id, heartbeat_interval_ms=3000)
    )
    member.subscribe(Interest(frozenset({"t"})))
    return member


def joined(generation: int = 1, *, leader: str = "other", protocol: str = "range", code: int = 0) -> JoinGroupResponse:
    members = []
    if leader == "me":
        metadata = subscription_bytes(["t"], [], -1)
        members = [JoinGroupResponseMember(member_id=name, metadata=metadata) for name in ("me", "other")]
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation,
        protocol_name=protocol,
        leader=leader,
        member_id="me",
        members=members,
    )


def synced(*partitions: TopicPartition, code: int = 0) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=assignment_bytes(by_topic(partitions)))


def heard(code: int = 0) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def asked(member: ClassicMember, now_s: float = 0.0) -> object:
    action = member.next(now_s)
    return action.request if isinstance(action, Ask) else action


def take_turn(member: ClassicMember) -> Turn:
    turn = member.begin_turn()
    member.end_turn(done=True)
    return turn


def reading(assignors: tuple[str, ...] = EAGER, *partitions: TopicPartition) -> ClassicMember:
    """A member that has joined and reads these."""
    member = new_member(assignors)
    member.answered(joined(protocol=assignors[0]), 0.0)
    member.answered(synced(*(partitions or (T0, T1))), 0.0)
    take_turn(member)
    assert member.settled
    return member


def test_a_newcomer_is_given_its_id_and_comes_back_with_it() -> None:
    member = new_member()
    request = asked(member)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == ""
    member.answered(joined(code=ErrorCode.MEMBER_ID_REQUIRED), 0.0)
    again = asked(member)
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == "me"


def test_a_follower_asks_for_its_share_and_reads_it_when_the_application_is_there() -> None:
    member = new_member()
    member.answered(joined(7), 0.0)
    request = asked(member)
    assert isinstance(request, SyncGroupRequest)
    assert (request.generation_id, request.assignments) == (7, [])
    member.answered(synced(T0), 10.0)
    assert member.owned == frozenset()
    assert member.turn == Turn(assigned=frozenset({T0}))
    assert isinstance(asked(member, 13.0), HeartbeatRequest), "a slow application is not dead"
    take_turn(member)
    assert member.owned == {T0}


def test_a_leader_divides_what_it_looked_up() -> None:
    member = new_member()
    member.answered(joined(leader="me"), 0.0)
    assert member.next(0.0) == LookUp(frozenset({"t"}))
    member.topics_known({"t": KnownTopic(TopicId(bytes(16)), 3), "else": KnownTopic(TopicId(bytes(16)), 9)})
    request = asked(member)
    assert isinstance(request, SyncGroupRequest)
    shares = {each.member_id: read_assignment(bytes(each.assignment)) for each in request.assignments}
    assert shares == {"me": frozenset({T0, T1}), "other": frozenset({T2})}


def test_a_leader_has_a_topic_that_grew_divided_again() -> None:
    member = new_member()
    member.answered(joined(leader="me"), 0.0)
    before = {"t": KnownTopic(TopicId(bytes(16)), 3)}
    member.topics_known(before)
    member.answered(synced(T0), 0.0)
    take_turn(member)
    member.topics_known(before)
    member.topics_known({})
    assert member.settled, "a topic that a broker does not know is no news"
    member.topics_known({"t": KnownTopic(TopicId(bytes(16)), 4)})
    assert member.turn == Turn(revoked=frozenset({T0}))
    take_turn(member)
    assert isinstance(asked(member), JoinGroupRequest)


def test_followers_leave_growth_to_the_leader() -> None:
    member = reading()
    member.topics_known({"t": KnownTopic(TopicId(bytes(16)), 40)})
    assert member.settled


def test_an_eager_member_gives_up_everything_before_it_joins() -> None:
    member = reading()
    member.answered(heard(ErrorCode.REBALANCE_IN_PROGRESS), 3.0)
    assert member.turn == Turn(revoked=frozenset({T0, T1}))
    assert member.next(3.0) == Rest(6.0)
    member.begin_turn()
    assert member.next(3.0) == Rest(6.0), "not even while the application is at it"
    assert isinstance(asked(member, 6.0), HeartbeatRequest)
    member.end_turn(done=False)
    assert member.next(3.0) == Rest(6.0), "nor when it was kept from it"
    take_turn(member)
    request = asked(member, 3.0)
    assert isinstance(request, JoinGroupRequest)
    assert not read_subscription(bytes(request.protocols[0].metadata), None, sticky_data=False).owned


def test_a_cooperative_member_keeps_reading_and_joins_again_when_it_gave_something_up() -> None:
    member = reading(COOPERATIVE)
    member.answered(heard(ErrorCode.REBALANCE_IN_PROGRESS), 3.0)
    assert member.turn is None
    request = asked(member, 3.0)
    assert isinstance(request, JoinGroupRequest)
    said = read_subscription(bytes(request.protocols[0].metadata), None, sticky_data=False)
    assert (said.owned, said.generation) == ({"t": [0, 1]}, 1)
    member.answered(joined(2, protocol=COOPERATIVE[0]), 3.0)
    member.answered(synced(T0), 3.0)
    assert take_turn(member) == Turn(revoked=frozenset({T1}))
    assert member.owned == {T0}
    assert member.phase is Phase.JOIN
    assert isinstance(asked(member, 3.0), JoinGroupRequest)


def test_a_cooperative_member_gives_up_topics_it_does_not_want_any_more_before_it_joins() -> None:
    member = reading(COOPERATIVE)
    member.subscribe(Interest(frozenset({"u"})))
    assert take_turn(member) == Turn(revoked=frozenset({T0, T1}))
    assert isinstance(asked(member), JoinGroupRequest)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
@pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
def test_who_is_thrown_out_has_lost_everything(code: ErrorCode, member_id: str, assignors: tuple[str, ...]) -> None:
    member = reading(assignors)
    member.answered(heard(code), 3.0)
    assert member.next(3.0) == Rest(), "it is nobody's business whether it lives"
    assert take_turn(member) == Turn(revoked=frozenset({T0, T1}), lost=True)
    request = asked(member)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == member_id


def test_who_is_thrown_out_while_taking_over_has_lost_that_too() -> None:
    member = new_member()
    member.answered(joined(), 0.0)
    member.answered(synced(T0), 0.0)
    member.begin_turn()
    member.answered(heard(ErrorCode.UNKNOWN_MEMBER_ID), 3.0)
    assert member.next(3.0) == Rest()
    member.end_turn(done=True)
    assert take_turn(member) == Turn(revoked=frozenset({T0}), lost=True)
    assert member.owned == frozenset()


def test_a_rebalance_during_taking_over_waits_for_it() -> None:
    member = new_member()
    member.answered(joined(), 0.0)
    member.answered(synced(T0), 0.0)
    member.answered(heard(ErrorCode.REBALANCE_IN_PROGRESS), 3.0)
    assert take_turn(member) == Turn(assigned=frozenset({T0}))
    assert take_turn(member) == Turn(revoked=frozenset({T0}))
    assert isinstance(asked(member), JoinGroupRequest)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_what_cannot_get_better_ends_it(code: ErrorCode) -> None:
    member = reading()
    member.answered(joined(code=code), 0.0)
    assert member.failure is not None
    assert member.failure.code == code
    assert take_turn(member).lost
    assert member.next(99.0) == Rest()


def test_a_lost_answer_is_asked_for_again() -> None:
    member = new_member()
    first = asked(member)
    member.unanswered(1.0)
    assert asked(member, 1.0) == first
    member.answered(joined(), 1.0)
    assert isinstance(asked(member), SyncGroupRequest)
    member.unanswered(2.0)
    assert isinstance(asked(member), SyncGroupRequest)


def test_who_leaves_says_so_unless_it_will_be_back() -> None:
    farewell = reading().goodbye()
    assert isinstance(farewell, LeaveGroupRequest)
    assert farewell.members[0].member_id == "me"
    static = new_member(instance_id="one")
    static.answered(joined(), 0.0)
    assert static.goodbye() is None
    assert new_member().goodbye() is None


def test_who_sleeps_does_not_come_back_before_it_wakes() -> None:
    member = reading()
    member.fall_asleep()
    assert take_turn(member).lost
    assert member.next(0.0) == Rest()
    member.wake_up()
    assert isinstance(asked(member), JoinGroupRequest)


def test_a_static_member_finds_its_partitions_again() -> None:
    rig = Rig(t=4)
    old = rig.join("range", instance_id="one")
    other = rig.join("range", instance_id="two")
    rig.run(share=2)
    had, others = old.member.owned, other.member.owned
    rig.leave(old)
    new = rig.join("range", instance_id="one")
    rig.run()
    assert new.member.owned == had
    assert other.member.owned == others
    assert other.heard.count(ErrorCode.REBALANCE_IN_PROGRESS) <= 1, "nobody else notices"


def test_a_sticky_group_moves_no_more_than_it_must() -> None:
    rig = Rig(t=6)
    members = [rig.join("sticky") for _ in range(2)]
    rig.run(share=3)
    had = [player.member.owned for player in members]
    rig.join("sticky")
    rig.run(share=2)
    for before, player in zip(had, members, strict=True):
        assert player.member.owned < before


PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1)))


@given(PARTITIONS, st.integers(-1, 2**31 - 1))
def test_claims_of_sticky_members_come_out_as_they_went_in(owned: frozenset[TopicPartition], generation: int) -> None:
    claim = read_sticky_data(sticky_data(owned, generation))
    assert claim is not None
    assert claim == (by_topic(owned), generation)


@given(st.binary(max_size=64))
def test_any_bytes_can_be_offered_by_others(data: bytes) -> None:
    read_sticky_data(data)
    read_assignment(data)
    read_subscription(data, None, sticky_data=True)


@given(st.sets(st.text(max_size=9)), PARTITIONS, st.integers(-1, 9))
def test_subscriptions_come_out_as_they_went_in(
    topics: set[str], owned: frozenset[TopicPartition], generation: int
) -> None:
    data = subscription_bytes(topics, owned, generation, rack="r")
    found = read_subscription(data, "one", sticky_data=False)
    assert (set(found.topics), found.owned, found.generation, found.instance_id) == (
        topics,
        by_topic(owned),
        generation,
        "one",
    )
