"""Groups that change protocol while they run: from classic to the newer one, both at once, and back."""

from __future__ import annotations

from typing import Any

import pytest
from classic_readers import PROTOCOL, ClassicReader, share_bytes
from consumer_readers import GROUP, HEARTBEAT_MS, ConsumerDriver, Reader, owned_of, settle
from group_driver import REBALANCE_MS, SESSION_MS, subscription

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode


def share(numbers: list[int], user_data: bytes | None = None) -> bytes:
    return share_bytes({("t", number) for number in numbers}, user_data)


def classic_group(driver: ConsumerDriver, shares: list[bytes], **options: Any) -> list[str]:
    """A settled classic group whose members have these assignments."""
    options.setdefault("protocols", {PROTOCOL: subscription("t"), "range": subscription("t")})
    members, _generation = driver.stable_group(GROUP, len(shares), **options)
    joins = {member: driver.join(GROUP, member, **options) for member in members}
    answers = {member: driver.joined(ticket) for member, ticket in joins.items()}
    leader = answers[members[0]].leader
    assignments = dict(zip(members, shares, strict=True))
    for member in sorted(members, key=lambda name: name != leader):
        generation = answers[leader].generation_id
        driver.sync(GROUP, member, generation, assignments if member == leader else {})
    assert driver.state(GROUP) == "Stable"
    return members


def generation_of(driver: ConsumerDriver) -> int:
    group = driver.shard._classic.get(GROUP)
    assert group is not None
    return group.generation


# --- upgrade ---


def test_the_first_member_of_the_newer_protocol_turns_the_group_over() -> None:
    driver = ConsumerDriver(t=4)
    members = classic_group(driver, [share([0, 1]), share([2, 3])])
    generation, mark = generation_of(driver), len(driver.log)
    reply = driver.enter_new("new")
    assert (reply.error_code, reply.member_epoch) == (ErrorCode.NONE, generation + 1)
    assert owned_of(reply, driver) == set(), "others have it all"
    assert driver.kinds_since(mark)[0] == "-2", "the classic group ends first"
    described = driver.consumer_describe()
    assert described.error_code == ErrorCode.NONE
    types = {member.member_id: member.member_type for member in described.members}
    assert types == {members[0]: 0, members[1]: 0, "new": 1}
    had = {
        member.member_id: [part.partitions for part in member.assignment.topic_partitions]
        for member in described.members
    }
    assert had == {members[0]: [[0, 1]], members[1]: [[2, 3]], "new": []}
    assert driver.describe(GROUP).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.listed() == {GROUP: ("Reconciling", "consumer")}


def test_classic_members_are_told_to_join_again() -> None:
    driver = ConsumerDriver(t=4)
    members = classic_group(driver, [share([0, 1]), share([2, 3])])
    generation = generation_of(driver)
    driver.enter_new("new")
    assert driver.heartbeat(GROUP, members[0], generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(GROUP, members[0], generation + 5) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(GROUP, "stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(GROUP, "new", generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID, "it does not speak classic"


def test_members_that_wait_in_a_rebalance_are_told_to_join_again() -> None:
    driver = ConsumerDriver(t=4)
    members = classic_group(driver, [share([0, 1]), share([2, 3])])
    waiting = driver.join(GROUP, members[0], protocols={PROTOCOL: subscription("t"), "range": subscription("t")})
    assert driver.waits(waiting)
    driver.enter_new("new")
    assert driver.joined(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_all_come_to_rest_and_nobody_reads_what_another_reads() -> None:
    driver = ConsumerDriver(t=6)
    old = [ClassicReader(driver), ClassicReader(driver)]
    for reader, member_id, numbers in zip(
        old, classic_group(driver, [share([0, 1, 2]), share([3, 4, 5])]), ([0, 1, 2], [3, 4, 5]), strict=True
    ):
        reader.adopt(member_id, generation_of(driver), {("t", number) for number in numbers})
    everyone: list[Reader | ClassicReader] = [Reader(driver, "new"), *old]
    for _ in range(12):
        for one in everyone:
            one.beat()
            one.obey()
            held = [partition for other in everyone for partition in other.reading]
            assert len(held) == len(set(held))
        driver.advance(HEARTBEAT_MS // 2)
    assert sorted(len(one.reading) for one in everyone) == [2, 2, 2]
    assert driver.consumer_describe().group_state == "Stable"


def test_what_a_cooperative_member_has_not_let_go_of_yet_is_not_given_away() -> None:
    """The classic leader took a partition from a member that has not heard of it when the group is turned over."""
    driver = ConsumerDriver(t=3)
    slow = ClassicReader(driver)
    slow.beat()
    everything = set(slow.reading)
    assert len(everything) == 3
    other = ClassicReader(driver)
    other.ask_to_join()
    slow.beat()
    slow.ask_to_join()  # the round is complete: both know of the generation
    leader, follower = (slow, other) if slow.leads() else (other, slow)
    leader.beat()
    assert driver.state(GROUP) == "Stable"
    if leader is slow:
        slow.reading = set(everything)  # it did not get the answer
    new = Reader(driver, "new")
    everyone: list[Reader | ClassicReader] = [new, leader, follower]
    for _ in range(8):
        new.beat()
        new.obey()
        held = [partition for one in everyone for partition in one.reading]
        assert len(held) == len(set(held)), "given to another while it is still read"
    for _ in range(10):
        for one in everyone:
            one.beat()
            one.obey()
        driver.advance(HEARTBEAT_MS // 2)
    assert [len(one.reading) for one in everyone] == [1, 1, 1]
    assert set.union(*(one.reading for one in everyone)) == everything


def test_an_empty_classic_group_just_gives_way() -> None:
    driver = ConsumerDriver(t=1)
    members = classic_group(driver, [share([0])])
    driver.leave(GROUP, (members[0], None))
    mark = len(driver.log)
    reply = driver.enter_new("new")
    assert (reply.error_code, reply.member_epoch) == (ErrorCode.NONE, 1)
    assert driver.kinds_since(mark) == ["-2", "5", "4", "3", "7", "6", "8"]


def test_a_partition_that_was_given_twice_is_kept_by_one() -> None:
    driver = ConsumerDriver(t=2)
    members = classic_group(driver, [share([0, 1]), share([1])])
    driver.enter_new("new")
    position = {name: member.position for name, member in driver.group().members.items()}
    assert position[members[0]].assigned
    assert not position[members[1]].assigned


@pytest.mark.parametrize(
    ("policy", "options", "shares", "why"),
    [
        ("disabled", {}, [share([0])], "group.consumer.migration.policy"),
        ("downgrade", {}, [share([0])], "group.consumer.migration.policy"),
        ("bidirectional", {"protocol_type": "connect"}, [b""], "not consumers"),
        ("bidirectional", {"protocols": {PROTOCOL: b"nonsense"}}, [share([0])], "cannot be read"),
        ("bidirectional", {"protocols": {PROTOCOL: b""}}, [share([0])], "cannot be read"),
        ("bidirectional", {}, [b"\0"], "cannot be read"),
        ("bidirectional", {}, [b"\0\1\0\0\0\7"], "cannot be read"),
        (
            "bidirectional",
            {"protocols": {"mine": subscription("t")}},
            [share([0], user_data=b"mine")],
            "data of its own",
        ),
        ("upgrade", {}, [share([0]), share([1])], "group.consumer.max.size"),
    ],
)
def test_a_group_that_cannot_be_turned_over_stays_as_it_is(
    policy: str, options: dict[str, Any], shares: list[bytes], why: str
) -> None:
    driver = ConsumerDriver(
        GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy, consumer_max_size=1), t=2
    )
    members = classic_group(driver, shares, **options)
    mark = len(driver.log)
    reply = driver.enter_new("new")
    assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert why in (reply.error_message or "")
    assert driver.kinds_since(mark) == []
    assert driver.heartbeat(GROUP, members[0], generation_of(driver)) == ErrorCode.NONE


def test_what_known_assignors_send_along_is_not_missed() -> None:
    driver = ConsumerDriver(t=2)
    classic_group(driver, [share([0, 1], user_data=b"as librdkafka does")])
    assert driver.enter_new("new").error_code == ErrorCode.NONE


def test_a_group_too_large_to_be_stored_anew_stays_as_it_is() -> None:
    driver = ConsumerDriver(GroupConfig(initial_rebalance_delay_ms=0, record_bytes_max=6000), t=1)
    protocols = {PROTOCOL: subscription("t", *(f"topic-{number}" for number in range(300)))}
    members = classic_group(driver, [share([0])], protocols=protocols)
    assert driver.enter_new("new").error_code == ErrorCode.INVALID_REQUEST
    assert driver.heartbeat(GROUP, members[0], generation_of(driver)) == ErrorCode.NONE


def test_a_member_that_asks_in_an_epoch_does_not_turn_the_group_over() -> None:
    driver = ConsumerDriver(t=1)
    classic_group(driver, [share([0])])
    assert driver.beat("new", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.beat("new", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_changes_over_and_keeps_what_it_had() -> None:
    driver = ConsumerDriver(t=2)
    protocols = {PROTOCOL: subscription("t")}
    first = driver.join(GROUP, protocols=protocols, instance_id="i1")
    member_id = driver.joined(first).member_id
    driver.sync(GROUP, member_id, 1, {member_id: share([0, 1])}, instance_id="i1")
    assert driver.state(GROUP) == "Stable"
    reply = driver.enter_new("new", instance_id="i1")
    assert reply.error_code == ErrorCode.NONE
    assert owned_of(reply, driver) == {("t", 0), ("t", 1)}
    assert driver.heartbeat(GROUP, member_id, 1, "i1") == ErrorCode.FENCED_INSTANCE_ID


# --- classic members in a group of the newer protocol ---


def mixed(**partitions: int) -> tuple[ConsumerDriver, Reader, ClassicReader]:
    driver = ConsumerDriver(None, **(partitions or {"t": 4}))
    new, old = Reader(driver, "new"), ClassicReader(driver)
    new.beat()
    new.obey()
    driver.advance(HEARTBEAT_MS)
    for _ in range(10):
        for reader in (old, new):
            reader.beat()
            reader.obey()
        driver.advance(HEARTBEAT_MS)
    return driver, new, old


def test_a_classic_member_joins_a_group_of_the_newer_protocol() -> None:
    driver, new, old = mixed()
    assert (len(new.reading), len(old.reading)) == (2, 2)
    assert not new.reading & old.reading
    assert driver.consumer_describe().group_state == "Stable"
    assert old.generation == new.epoch


def test_a_classic_join_is_answered_at_once_and_names_no_leader() -> None:
    driver, _new, _old = mixed()
    member_id, ticket = driver.enter(GROUP, protocols={"range": subscription("t"), PROTOCOL: subscription("t")})
    reply = driver.joined(ticket)
    assert (reply.error_code, reply.member_id, reply.leader, reply.members) == (ErrorCode.NONE, member_id, "", [])
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"range": subscription("t")}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {PROTOCOL: b"?"}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "m" * 8192}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "nobody", "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_classic_joins_that_are_refused(options: dict[str, Any], code: ErrorCode) -> None:
    driver, _new, _old = mixed()
    given = {"protocols": {PROTOCOL: subscription("t")}, "member_id": "m", **options}
    mark = len(driver.log)
    assert driver.joined(driver.join(GROUP, **given)).error_code == code
    assert driver.kinds_since(mark) == []


def test_a_classic_member_changes_its_protocol_when_it_is_the_only_classic_one() -> None:
    _driver, _new, old = mixed()
    old.protocol = "another"
    assert old.ask_to_join() == ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation": 99}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "new"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "consumer", "protocol": PROTOCOL}, ErrorCode.NONE),
    ],
)
def test_classic_syncs(fields: dict[str, Any], code: ErrorCode) -> None:
    driver, _new, old = mixed()
    given = {"member_id": old.member_id, "generation": old.generation, **fields}
    assert driver.synced(driver.sync(GROUP, **given)).error_code == code


def test_a_sync_of_an_old_round_is_told_to_join_again() -> None:
    driver, _new, old = mixed()
    driver.enter_new("another")
    reply = driver.synced(driver.sync(GROUP, old.member_id, old.generation))
    assert reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_join_again_is_thrown_out() -> None:
    driver, new, old = mixed()
    driver.enter_new("another")
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        assert driver.heartbeat(GROUP, old.member_id, old.generation) == ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        driver.advance(HEARTBEAT_MS)
    assert driver.heartbeat(GROUP, old.member_id, old.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_joins_and_never_syncs_is_thrown_out() -> None:
    driver, new, old = mixed()
    assert old.ask_to_join() == ErrorCode.NONE
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        assert driver.heartbeat(GROUP, old.member_id, old.generation) == ErrorCode.NONE
        new.beat()
        driver.advance(HEARTBEAT_MS)
    assert driver.heartbeat(GROUP, old.member_id, old.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_the_session_it_asked_for() -> None:
    driver, new, old = mixed()
    for _ in range(SESSION_MS // HEARTBEAT_MS):
        new.beat()
        driver.advance(HEARTBEAT_MS)
    assert driver.heartbeat(GROUP, old.member_id, old.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_commit_by_generation() -> None:
    driver, new, old = mixed()
    for epoch, code in ((old.generation, ErrorCode.NONE), (old.generation - 1, ErrorCode.ILLEGAL_GENERATION)):
        response = driver.commit(GROUP, {("t", 0): 1}, member_id=old.member_id, generation=epoch, version=8)
        assert response.topics[0].partitions[0].error_code == code
    response = driver.commit(GROUP, {("t", 0): 1}, member_id=new.member_id, generation=new.epoch - 1)
    assert response.topics[0].partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_administrators_remove_any_member_by_its_instance() -> None:
    driver = ConsumerDriver(t=2)
    driver.enter_new("m1", instance_id="i1")
    driver.enter_new("m2")
    answers = driver.leave(GROUP, ("", "i1"), ("", "nobody"), ("stranger", None), ("m1", "i2")).members
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert driver.group().members.keys() == {"m2"}
    assert driver.leave_alone(GROUP, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave_alone(GROUP, "m2") == ErrorCode.NONE


# --- downgrade ---


@pytest.mark.parametrize("how", ["leaves", "dies"])
def test_when_the_last_member_of_the_newer_protocol_goes_the_group_is_classic_again(how: str) -> None:
    driver, new, old = mixed()
    had = set(old.reading)
    if how == "leaves":
        new.leave()
    else:
        for _ in range(9):
            old.beat()
            driver.advance(HEARTBEAT_MS)
    driver.advance(1)
    assert driver.consumer_describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.state(GROUP) == "PreparingRebalance"
    assert old.reading == had
    for _ in range(2):
        old.beat()  # learns of the rebalance, and takes part in it
    assert old.reading == {("t", number) for number in range(4)}
    assert driver.state(GROUP) == "Stable"


def test_a_member_that_leaves_right_after_the_change_begins_the_round_itself() -> None:
    driver, new, old = mixed()
    other = ClassicReader(driver)
    everyone: list[Reader | ClassicReader] = [new, old, other]
    for _ in range(10):
        for reader in everyone:
            reader.beat()
            reader.obey()
        driver.advance(HEARTBEAT_MS)
    assert len(other.reading) == 1
    new.leave()
    other.leave()
    driver.advance(1)
    for _ in range(2):
        old.beat()
    assert old.reading == {("t", number) for number in range(4)}


def test_what_was_divided_survives_a_restart_right_after_the_change() -> None:
    driver, new, old = mixed()
    new.leave()
    driver.reload()
    assert driver.state(GROUP) == "PreparingRebalance", "what the newer member had is nobody's: it must be divided"
    assert driver.heartbeat(GROUP, old.member_id, old.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert not driver.stored_ids()


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_policy_against_it_keeps_the_group_as_it_is(policy: str) -> None:
    driver = ConsumerDriver(GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy), t=2)
    new, old = Reader(driver, "new"), ClassicReader(driver)
    new.beat()
    new.obey()
    driver.advance(HEARTBEAT_MS)
    assert old.beat() == ErrorCode.NONE
    new.leave()
    for _ in range(3):
        driver.advance(HEARTBEAT_MS)
        old.beat()
    assert driver.consumer_describe().group_state == "Stable"
    assert len(old.reading) == 2


def test_too_many_for_a_classic_group_stay_as_they_are() -> None:
    driver = ConsumerDriver(GroupConfig(initial_rebalance_delay_ms=0, max_size=1), t=2)
    driver.enter_new("new")
    for _ in range(2):
        assert ClassicReader(driver).ask_to_join() == ErrorCode.NONE
    driver.beat("new", -1)
    assert driver.consumer_describe().error_code == ErrorCode.NONE


def test_a_static_member_changes_back_and_takes_the_group_with_it() -> None:
    driver = ConsumerDriver(t=2)
    new = Reader(driver, "new", instance_id="i1")
    settle([new])
    old = ClassicReader(driver, instance_id="i1")
    assert old.ask_to_join() == ErrorCode.NONE
    driver.advance(1)
    assert driver.state(GROUP) == "PreparingRebalance"
    assert driver.heartbeat(GROUP, old.member_id, old.generation, "i1") == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.ask_to_join() == ErrorCode.NONE
    assert driver.state(GROUP) == "CompletingRebalance"
    assert driver.beat("new", 2, instance_id="i1").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_static_member_replaces_another_in_a_mixed_group() -> None:
    driver, _new, _old = mixed()
    first, second = ClassicReader(driver, "i1"), ClassicReader(driver, "i1")
    assert first.ask_to_join() == ErrorCode.NONE
    assert second.ask_to_join() == ErrorCode.NONE
    assert first.member_id != second.member_id
    assert driver.heartbeat(GROUP, first.member_id, first.generation, "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert first.ask_to_join() == ErrorCode.FENCED_INSTANCE_ID
    assert second.beat() == ErrorCode.NONE


def test_a_classic_join_to_a_group_that_everybody_left_begins_a_classic_one() -> None:
    driver = ConsumerDriver(t=2)
    driver.enter_new("m1")
    driver.beat("m1", -1)
    _member_id, ticket = driver.enter(GROUP)
    assert driver.joined(ticket).error_code == ErrorCode.NONE
    assert driver.consumer_describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.state(GROUP) == "CompletingRebalance"
