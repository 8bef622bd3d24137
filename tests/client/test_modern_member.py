"""What a member of the newer protocol does next, case by case."""

from __future__ import annotations

import pytest
from member_rig import BEAT_MS, Rig

from tidelog.client.groups.member import Ask, Interest, KnownTopic, LookUp, Rest, Turn
from tidelog.client.groups.modern import ModernMember, ModernSettings
from tidelog.errors import ErrorCode
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResponse,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
T_ID, U_ID = TopicId(b"t" * 16), TopicId(b"u" * 16)
KNOWN = {"t": KnownTopic(T_ID, 3)}


def new_member(instance_id: str | None = None, pattern: str | None = None) -> ModernMember:
    member = ModernMember(ModernSettings(group_id="g", member_id="me", instance_id=instance_id, assignor="uniform"))
    member.subscribe(Interest(frozenset() if pattern else frozenset({"t"}), pattern))
    return member


def told(epoch: int, *numbers: int, topic_id: TopicId = T_ID) -> ConsumerGroupHeartbeatResponse:
    given = [TopicPartitionsResponse(topic_id=topic_id, partitions=list(numbers))] if numbers else []
    return answer(epoch, Assignment(topic_partitions=given))


def answer(epoch: int, assignment: Assignment | None = None, code: int = 0) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=code,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=assignment,
    )


def said(member: ModernMember, now_s: float = 0.0) -> ConsumerGroupHeartbeatRequest:
    action = member.next(now_s)
    assert isinstance(action, Ask), action
    assert isinstance(action.request, ConsumerGroupHeartbeatRequest)
    return action.request


def owned(request: ConsumerGroupHeartbeatRequest) -> list[tuple[bytes, list[int]]] | None:
    said_so = request.topic_partitions
    return None if said_so is None else [(each.topic_id, each.partitions) for each in said_so]


def take_turn(member: ModernMember) -> Turn:
    turn = member.begin_turn()
    member.end_turn(done=True)
    return turn


def reading(*numbers: int) -> ModernMember:
    member = new_member()
    said(member)
    member.topics_known(KNOWN)
    member.answered(told(1, *numbers), 0.0)
    if numbers:
        take_turn(member)
    said(member)
    member.answered(answer(1), 0.0)
    assert member.settled
    return member


def test_it_joins_by_saying_everything() -> None:
    request = said(new_member())
    assert (request.member_id, request.member_epoch, request.subscribed_topic_names) == ("me", 0, ["t"])
    assert (request.rebalance_timeout_ms, request.server_assignor, owned(request)) == (300_000, "uniform", [])


def test_it_reads_what_it_is_told_and_says_so_at_once() -> None:
    member = new_member()
    said(member)
    member.topics_known(KNOWN)
    member.answered(told(1, 0, 1), 0.0)
    assert member.next(0.0) == Rest(5.0), "nothing to say before the application has it"
    assert take_turn(member) == Turn(assigned=frozenset({T0, T1}))
    request = said(member)
    assert owned(request) == [(T_ID, [0, 1])]
    assert (request.subscribed_topic_names, request.rebalance_timeout_ms) == (None, -1), "only what has changed"
    member.answered(answer(1), 0.0)
    assert member.next(1.0) == Rest(5.0)
    assert owned(said(member, 5.0)) is None


def test_it_gives_up_first_and_reports_then() -> None:
    member = reading(0, 1)
    said(member, 5.0)
    member.answered(told(1, 0), 5.0)
    assert member.next(5.0) == Rest(10.0)
    assert owned(said(member, 10.0)) is None
    assert take_turn(member) == Turn(revoked=frozenset({T1}))
    assert owned(said(member, 5.0)) == [(T_ID, [0])]


def test_topics_are_looked_up_by_id_until_they_are_known() -> None:
    member = new_member()
    said(member)
    member.answered(told(1, 0), 0.0)
    assert member.next(0.0) == LookUp(frozenset({"t"}), frozenset({T_ID}))
    assert member.turn is None
    assert member.next(0.0) == Rest(1.0)
    assert isinstance(member.next(1.0), LookUp)
    member.topics_known(KNOWN)
    assert member.turn == Turn(assigned=frozenset({T0}))


def test_a_topic_that_was_created_again_is_another_one() -> None:
    member = reading(0)
    said(member, 5.0)
    member.answered(told(2, 0, topic_id=U_ID), 5.0)
    member.topics_known({"t": KnownTopic(U_ID, 3)})
    assert take_turn(member) == Turn(revoked=frozenset({T0}), assigned=frozenset({T0}))
    assert owned(said(member, 5.0)) == [(U_ID, [0])]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_who_is_thrown_out_joins_again_when_the_application_knows(code: ErrorCode) -> None:
    member = reading(0)
    said(member, 5.0)
    member.answered(answer(0, code=code), 5.0)
    assert member.next(99.0) == Rest()
    assert member.held_up
    assert take_turn(member) == Turn(revoked=frozenset({T0}), lost=True)
    request = said(member, 5.0)
    assert (request.member_epoch, owned(request), request.subscribed_topic_names) == (0, [], ["t"])


def test_who_is_thrown_out_while_taking_over_has_lost_that_too() -> None:
    member = new_member()
    said(member)
    member.topics_known(KNOWN)
    member.answered(told(1, 0), 0.0)
    member.begin_turn()
    said(member, 5.0)
    member.answered(answer(0, code=ErrorCode.FENCED_MEMBER_EPOCH), 5.0)
    member.end_turn(done=True)
    assert take_turn(member) == Turn(revoked=frozenset({T0}), lost=True)


def test_after_a_lost_answer_it_says_everything() -> None:
    member = reading(0)
    said(member, 5.0)
    member.unanswered(6.0)
    request = said(member, 6.0)
    assert (request.member_epoch, request.subscribed_topic_names, owned(request)) == (1, ["t"], [(T_ID, [0])])


def test_what_it_is_about_to_take_over_is_not_said_to_be_free() -> None:
    member = reading(0)
    said(member, 5.0)
    member.answered(told(2, 0, 1), 5.0)
    said(member, 10.0)
    member.unanswered(11.0)
    assert owned(said(member, 11.0)) == [(T_ID, [0, 1])]
    assert take_turn(member) == Turn(assigned=frozenset({T1})), "it may begin before it is answered"
    member.answered(told(2, 0, 1), 12.0)
    assert member.settled


def test_what_it_was_about_to_take_over_is_given_up_by_saying_so() -> None:
    member = reading(0)
    said(member, 5.0)
    member.answered(told(2, 0, 1), 5.0)
    member.unanswered(6.0)
    assert owned(said(member, 6.0)) == [(T_ID, [0, 1])]
    member.answered(told(2, 0), 6.0)
    assert member.turn is None
    assert owned(said(member, 6.0)) == [(T_ID, [0])]


def test_what_is_being_taken_over_is_said_to_be_owned_whatever_it_is_told_meanwhile() -> None:
    member = reading(0)
    said(member, 5.0)
    member.answered(told(2, 0, 1), 5.0)
    member.begin_turn()
    said(member, 10.0)
    member.answered(told(2, 0), 10.0)
    member.unanswered(11.0)
    assert owned(said(member, 11.0)) == [(T_ID, [0, 1])]
    member.answered(told(2, 0), 11.0)
    member.end_turn(done=True)
    assert take_turn(member) == Turn(revoked=frozenset({T1}))
    assert owned(said(member, 12.0)) == [(T_ID, [0])]


def test_lost_answers_make_no_two_members_read_a_partition() -> None:
    """One is told to read, is about to, and misses what it is told next."""
    rig = Rig(t=2)
    one, two = rig.join("consumer"), rig.join("consumer")
    rig.step(one)
    rig.step(one)
    rig.show_topics(one)
    for _ in range(3):  # it reports, and hears nothing
        rig.driver.advance(BEAT_MS)
        rig.step(two)
        rig.step(two)
        rig.step(one)
        rig.lose(one)
    rig.take_turn(one)
    for _ in range(3):
        rig.step(two)
        rig.step(two)
        rig.take_turn(two)
        assert all(len(players) == 1 for players in rig.owners().values())
    rig.run(share=1)


def test_a_pattern_is_the_coordinators_to_match() -> None:
    member = new_member(pattern="t.*")
    request = said(member)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, "t.*")
    member.answered(told(1), 0.0)
    member.subscribe(Interest(frozenset({"t"})))
    request = said(member)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_an_instance_that_is_still_there_is_waited_for() -> None:
    member = new_member("one")
    said(member)
    member.answered(answer(0, code=ErrorCode.UNRELEASED_INSTANCE_ID), 0.0)
    assert member.failure is None
    assert member.next(0.5) == Rest(1.0)
    assert said(member, 1.0).member_epoch == 0


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_what_cannot_get_better_ends_it(code: ErrorCode) -> None:
    member = reading(0)
    said(member, 5.0)
    member.answered(answer(0, code=code), 5.0)
    assert member.failure is not None
    assert member.failure.code == code
    assert take_turn(member).lost
    assert member.next(99.0) == Rest()


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_who_leaves_says_for_how_long(instance_id: str | None, epoch: int) -> None:
    member = new_member(instance_id)
    assert member.goodbye() is None
    said(member)
    member.answered(told(3), 0.0)
    farewell = member.goodbye()
    assert isinstance(farewell, ConsumerGroupHeartbeatRequest)
    assert (farewell.member_epoch, farewell.instance_id) == (epoch, instance_id)


def test_a_group_changes_over_while_it_works() -> None:
    rig = Rig(t=6)
    old = [rig.join("range") for _ in range(2)]
    rig.run()
    new = rig.join("consumer")
    rig.run(share=2)
    for player in old:
        rig.leave(player)
    rig.run(share=6)
    rig.join("range")
    rig.run(share=3)
    rig.leave(new)
    rig.run(share=6)
