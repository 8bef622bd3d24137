"""SyncGroup, Heartbeat, LeaveGroup, and the timeouts that keep a group from waiting for ever."""

from __future__ import annotations

import sys

import pytest
from group_driver import REBALANCE_MS, SESSION_MS, GroupDriver

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode
from tidelog.wire.stored.classic_groups import GroupMetadataValue


def joined_pair(driver: GroupDriver) -> tuple[str, str, int]:
    """A leader and a follower that know of the generation and have not synced."""
    leader, _ = driver.enter("g")
    follower, waiting = driver.enter("g")
    generation = driver.joined(driver.join("g", leader)).generation_id
    assert driver.joined(waiting).generation_id == generation
    return leader, follower, generation


class TestSync:
    def test_followers_wait_for_the_leader(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        waiting = driver.sync("g", follower, generation)
        assert driver.waits(waiting)
        ticket = driver.sync("g", leader, generation, {leader: b"L", follower: b"F"})
        assert driver.synced(ticket).assignment == b"L"
        assert driver.synced(waiting).assignment == b"F"
        assert driver.synced(waiting).protocol_type == "consumer"
        assert driver.synced(waiting).protocol_name == "range"

    def test_whoever_comes_later_is_answered_at_once(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        driver.sync("g", leader, generation, {follower: b"F"})
        assert driver.synced(driver.sync("g", follower, generation)).assignment == b"F"
        assert driver.synced(driver.sync("g", leader, generation)).assignment == b"", "the leader forgot itself"

    def test_the_division_is_what_is_stored(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        assert driver.log == [], "nothing is stored until the partitions are divided"
        driver.sync("g", leader, generation, {leader: b"L", follower: b"F", "stranger": b"S"})
        (record,) = driver.log
        value = record.value
        assert isinstance(value, GroupMetadataValue)
        assert (record.key_version, record.value_version) == (2, 3)
        assert (value.generation, value.protocol, value.leader) == (generation, "range", leader)
        assert {member.member_id: member.assignment for member in value.members} == {leader: b"L", follower: b"F"}
        assert value.current_state_timestamp == driver.now_ms

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_what_is_refused(self, change: dict[str, object], code: ErrorCode) -> None:
        driver = GroupDriver()
        leader, _follower, generation = joined_pair(driver)
        options = {"group_id": "g", "member_id": leader, "generation": generation, **change}
        ticket = driver.sync(**options)  # type: ignore[arg-type]
        assert driver.synced(ticket).error_code == code
        assert driver.state("g") == "CompletingRebalance"

    def test_a_rebalance_sends_everybody_back(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        waiting = driver.sync("g", follower, generation)
        driver.enter("g")
        assert driver.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        ticket = driver.sync("g", leader, generation, {leader: b"L"})
        assert driver.synced(ticket).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.log == []

    def test_the_first_of_two_syncs_is_not_left_without_an_answer(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        first, second = (driver.sync("g", follower, generation) for _ in range(2))
        assert driver.synced(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        driver.sync("g", leader, generation, {follower: b"F"})
        assert driver.synced(second).assignment == b"F"

    def test_a_division_that_cannot_be_stored_is_refused(self) -> None:
        driver = GroupDriver(GroupConfig(initial_rebalance_delay_ms=0, record_bytes_max=10_000))
        leader, follower, generation = joined_pair(driver)
        waiting = driver.sync("g", follower, generation)
        ticket = driver.sync("g", leader, generation, {leader: bytes(10_000)})
        assert driver.synced(ticket).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert driver.synced(waiting).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert driver.state("g") == "PreparingRebalance"
        assert driver.log == []


class TestHeartbeat:
    @pytest.mark.parametrize(
        ("group_id", "member_id", "generation", "code"),
        [
            ("", "m", 1, ErrorCode.INVALID_GROUP_ID),
            ("other", "m", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("g", "stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("g", "", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("g", "client-id1", 0, ErrorCode.ILLEGAL_GENERATION),
            ("g", "client-id1", 2, ErrorCode.ILLEGAL_GENERATION),
            ("g", "client-id1", 1, ErrorCode.NONE),
        ],
    )
    def test_who_is_heard(self, group_id: str, member_id: str, generation: int, code: ErrorCode) -> None:
        driver = GroupDriver()
        assert driver.stable_group("g") == (["client-id1"], 1)
        assert driver.heartbeat(group_id, member_id, generation) == code

    def test_while_the_partitions_are_being_divided(self) -> None:
        driver = GroupDriver()
        leader, _follower, generation = joined_pair(driver)
        assert driver.heartbeat("g", leader, generation) == ErrorCode.NONE

    def test_an_id_that_nobody_joined_with_is_no_member(self) -> None:
        driver = GroupDriver()
        driver.stable_group("g")
        pending = driver.joined(driver.join("g")).member_id
        assert driver.heartbeat("g", pending, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_it_costs_no_record_and_no_timer(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        before, timers = len(driver.log), dict(driver.timers)
        driver.advance(1)
        assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE
        assert len(driver.log) == before
        assert driver.timers == timers


class TestSessions:
    def test_a_silent_member_is_dropped_after_its_timeout(self) -> None:
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2)
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat("g", second, generation) == ErrorCode.NONE
        driver.advance(1)
        assert driver.heartbeat("g", first, generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.heartbeat("g", second, generation) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_each_heartbeat_begins_it_anew(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        for _ in range(20):
            driver.advance(SESSION_MS - 1)
            assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE
        driver.advance(SESSION_MS)
        assert driver.state("g") == "Empty"

    def test_a_commit_counts_as_a_heartbeat(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        for _ in range(3):
            driver.advance(SESSION_MS - 1)
            driver.commit("g", {("t", 0): 1}, member_id=member_id, generation=generation)
        assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE

    def test_it_stands_still_while_a_member_waits(self) -> None:
        driver = GroupDriver()
        (slow, fast), generation = driver.stable_group("g", 2, session_ms=6000)
        waiting = driver.join("g", slow)  # it leads: all have to join again
        for _ in range(5):
            driver.advance(5999)
            assert driver.heartbeat("g", fast, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        driver.join("g", fast)
        assert driver.joined(waiting).error_code == ErrorCode.NONE
        parked = driver.sync("g", fast, generation + 1)
        for _ in range(5):
            driver.advance(5999)
            assert driver.heartbeat("g", slow, generation + 1) == ErrorCode.NONE
        driver.sync("g", slow, generation + 1, {fast: b"F"})
        assert driver.synced(parked).assignment == b"F"
        driver.advance(5999)
        assert driver.heartbeat("g", fast, generation + 1) == ErrorCode.NONE

    def test_a_shorter_one_holds_at_once(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g", session_ms=1_800_000)
        driver.settle("g", {member_id: driver.join("g", member_id, session_ms=6000)})
        driver.advance(6000)
        assert driver.heartbeat("g", member_id, generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_whoever_is_gone_while_it_waits_is_dropped_before_the_round_ends(self) -> None:
        driver = GroupDriver()
        (leader, follower), generation = driver.stable_group("g", 2)
        third, waiting = driver.enter("g")
        fourth, left = driver.enter("g")
        driver.shard.abandon(left)
        driver.join("g", leader)
        driver.join("g", follower)
        assert driver.waits(waiting), "the fourth may come back"
        driver.advance(SESSION_MS)
        answer = driver.joined(waiting)
        assert answer.generation_id == generation + 1
        assert fourth not in str(driver.describe("g").members)
        assert third in str(driver.describe("g").members)

    def test_whoever_is_gone_may_come_back_in_time(self) -> None:
        driver = GroupDriver()
        (leader,), _generation = driver.stable_group("g")
        member_id, left = driver.enter("g")
        driver.shard.abandon(left)
        again = driver.join("g", member_id)
        driver.join("g", leader)
        assert driver.joined(again).error_code == ErrorCode.NONE
        assert driver.waits(left), "nobody is there to be answered"

    def test_a_follower_that_is_gone_while_it_waits_for_its_share(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        left = driver.sync("g", follower, generation)
        driver.shard.abandon(left)
        driver.sync("g", leader, generation, {follower: b"F"})
        assert driver.waits(left)
        assert driver.synced(driver.sync("g", follower, generation)).assignment == b"F"

    def test_abandoning_what_was_answered_changes_nothing(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        for ticket in list(driver.asked):
            driver.shard.abandon(ticket)
        assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE


class TestRebalances:
    def test_whoever_does_not_join_in_time_is_left_out(self) -> None:
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2, session_ms=REBALANCE_MS + 1)
        _, waiting = driver.enter("g")
        joined = driver.join("g", second)
        driver.advance(REBALANCE_MS - 1)
        assert driver.waits(waiting)
        driver.advance(1)
        answer = driver.joined(joined)
        assert answer.leader == second, "the leader was not there"
        assert len(answer.members) == 2
        assert driver.heartbeat("g", first, generation) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_slowest_member_decides_how_long(self) -> None:
        driver = GroupDriver()
        options = {"session_ms": 1_800_000}
        first, _ = driver.enter("g", rebalance_ms=100_000, **options)
        _, waiting = driver.enter("g", rebalance_ms=1000, **options)
        driver.advance(99_999)
        assert driver.waits(waiting)
        driver.advance(1)
        assert not driver.waits(waiting)
        assert driver.joined(driver.join("g", first)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_id_that_was_given_out_is_waited_for(self) -> None:
        driver = GroupDriver()
        (leader,), _generation = driver.stable_group("g")
        pending = driver.joined(driver.join("g")).member_id
        waiting = driver.join("g", leader)
        assert driver.waits(waiting)
        driver.join("g", pending)
        assert len(driver.joined(waiting).members) == 2

    def test_an_id_that_is_never_used_is_not_waited_for_long(self) -> None:
        driver = GroupDriver()
        (leader,), _generation = driver.stable_group("g")
        driver.join("g")
        waiting = driver.join("g", leader)
        driver.advance(SESSION_MS)
        assert len(driver.joined(waiting).members) == 1

    def test_whoever_joins_and_never_syncs_is_dropped(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        driver.sync("g", leader, generation, {leader: b"L"})
        for _ in range(REBALANCE_MS // 5000 - 1):
            driver.advance(5000)
            assert driver.heartbeat("g", leader, generation) == ErrorCode.NONE
            assert driver.heartbeat("g", follower, generation) == ErrorCode.NONE
        driver.advance(5000)
        assert driver.heartbeat("g", leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.heartbeat("g", follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_leader_that_never_divides_is_dropped(self) -> None:
        driver = GroupDriver()
        leader, follower, generation = joined_pair(driver)
        waiting = driver.sync("g", follower, generation)
        for _ in range(REBALANCE_MS // 5000):
            driver.heartbeat("g", leader, generation)
            driver.advance(5000)
        assert driver.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        answer = driver.joined(driver.join("g", follower))
        assert (answer.leader, answer.generation_id) == (follower, generation + 1)

    def test_a_member_that_synced_is_not_dropped_for_another(self) -> None:
        driver = GroupDriver()
        _members, generation = driver.stable_group("g", 2)
        driver.advance(SESSION_MS - 1)
        for member_id in ("client-id1", "client-id2"):
            assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE

    def test_generations_begin_again_after_the_last(self) -> None:
        driver = GroupDriver()
        (member_id,), _ = driver.stable_group("g")
        group = driver.shard._classic.get("g")
        assert group is not None
        group.generation = 2**31 - 1
        assert driver.joined(driver.join("g", member_id)).generation_id == 1


class TestLeaving:
    def test_the_others_rebalance(self) -> None:
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2)
        answer = driver.leave("g", (first, None))
        assert (answer.error_code, answer.members[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert driver.heartbeat("g", second, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.joined(driver.join("g", second)).leader == second

    def test_the_last_one_leaves_the_group_empty(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        driver.leave("g", (member_id, None))
        assert driver.state("g") == "Empty"
        value = driver.log[-1].value
        assert isinstance(value, GroupMetadataValue)
        assert (value.generation, value.protocol, value.leader, value.members) == (generation + 1, None, None, [])
        assert value.protocol_type == "consumer"
        assert not [key for key in driver.timers if key != ("retention",)]

    def test_several_at_once_each_get_their_answer(self) -> None:
        driver = GroupDriver()
        (first, second, _third), _ = driver.stable_group("g", 3)
        answer = driver.leave("g", (first, None), ("stranger", None), (second, "i"), ("", None), ("", "i"))
        assert [member.error_code for member in answer.members] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert [member.member_id for member in answer.members] == [first, "stranger", second, "", ""]

    def test_a_member_cannot_leave_twice_in_one_request(self) -> None:
        driver = GroupDriver()
        (first, _second), _ = driver.stable_group("g", 2)
        answer = driver.leave("g", (first, None), (first, None))
        assert [member.error_code for member in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]

    @pytest.mark.parametrize(
        ("group_id", "member_id", "code"),
        [
            ("", "m", ErrorCode.INVALID_GROUP_ID),
            ("other", "m", ErrorCode.UNKNOWN_MEMBER_ID),
            ("g", "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
            ("g", "client-id1", ErrorCode.NONE),
        ],
    )
    def test_before_version_3_one_leaves_at_a_time(self, group_id: str, member_id: str, code: ErrorCode) -> None:
        driver = GroupDriver()
        driver.stable_group("g")
        assert driver.leave_alone(group_id, member_id) == code

    def test_a_group_that_is_not_there_knows_none_of_them(self) -> None:
        answer = GroupDriver().leave("g", ("a", None), ("b", "i"))
        assert answer.error_code == ErrorCode.NONE
        assert [member.error_code for member in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2

    def test_an_id_that_was_given_out_can_be_handed_back(self) -> None:
        driver = GroupDriver()
        pending = driver.joined(driver.join("g")).member_id
        assert driver.leave("g", (pending, None)).members[0].error_code == ErrorCode.NONE
        assert driver.listed() == {}
        assert ("session", "g", pending) not in driver.timers

    def test_nobody_is_disturbed_by_who_never_joined(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        pending = driver.joined(driver.join("g")).member_id
        driver.leave("g", (pending, None), ("stranger", None))
        assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE
        driver.join("g")
        for _ in range(3):
            driver.advance(SESSION_MS // 2)
            assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE

    def test_an_id_that_everybody_waits_for(self) -> None:
        driver = GroupDriver()
        (leader,), _generation = driver.stable_group("g")
        pending = driver.joined(driver.join("g")).member_id
        waiting = driver.join("g", leader)
        assert driver.waits(waiting)
        driver.leave("g", (pending, None))
        assert len(driver.joined(waiting).members) == 1

    def test_the_one_everybody_waits_for(self) -> None:
        driver = GroupDriver()
        (first, second), _ = driver.stable_group("g", 2)
        waiting = driver.join("g", first)
        assert driver.waits(waiting)
        driver.leave("g", (second, None))
        assert len(driver.joined(waiting).members) == 1


def test_a_round_of_twice_as_many_members_is_twice_as_much_work() -> None:
    """Counted in calls, since time depends on who else uses the machine."""

    def calls_of_a_round(size: int) -> int:
        driver = GroupDriver(GroupConfig(initial_rebalance_delay_ms=1000))
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            joins = dict(driver.enter("g") for _ in range(size))
            driver.advance(10_000)
            driver.settle("g", joins)
        finally:
            sys.setprofile(None)
        return calls

    assert calls_of_a_round(400) < 2.2 * calls_of_a_round(200)
