"""Static members (KIP-345): a restart that nobody notices, and a twin that is fenced."""

from __future__ import annotations

import pytest
from group_driver import SESSION_MS, GroupDriver, subscription

from tidelog.errors import ErrorCode


def static_pair(driver: GroupDriver, **options: object) -> tuple[str, str, int]:
    """The members of instances `a`, who leads, and `b`."""
    first = driver.joined(driver.join("g", instance_id="a", **options)).member_id  # type: ignore[arg-type]
    waiting = driver.join("g", instance_id="b", **options)  # type: ignore[arg-type]
    again = driver.join("g", first, instance_id="a", **options)  # type: ignore[arg-type]
    second = driver.joined(waiting).member_id
    generation = driver.joined(again).generation_id
    for member_id, instance in ((first, "a"), (second, "b")):
        driver.sync("g", member_id, generation, {first: b"A", second: b"B"}, instance_id=instance)
    assert driver.state("g") == "Stable"
    return first, second, generation


class TestARestart:
    def test_a_follower_keeps_its_share_under_a_new_id(self) -> None:
        driver = GroupDriver()
        first, second, generation = static_pair(driver)
        answer = driver.joined(driver.join("g", instance_id="b"))
        assert answer.error_code == ErrorCode.NONE
        assert answer.generation_id == generation
        assert answer.member_id != second
        assert (answer.leader, answer.members, answer.skip_assignment) == (first, [], False)
        assert driver.synced(driver.sync("g", answer.member_id, generation, instance_id="b")).assignment == b"B"
        assert driver.heartbeat("g", first, generation, "a") == ErrorCode.NONE

    def test_the_older_one_is_fenced(self) -> None:
        driver = GroupDriver()
        _first, second, generation = static_pair(driver)
        newer = driver.joined(driver.join("g", instance_id="b")).member_id
        assert driver.heartbeat("g", second, generation, "b") == ErrorCode.FENCED_INSTANCE_ID
        assert driver.joined(driver.join("g", second, instance_id="b")).error_code == ErrorCode.FENCED_INSTANCE_ID
        sync = driver.sync("g", second, generation, instance_id="b")
        assert driver.synced(sync).error_code == ErrorCode.FENCED_INSTANCE_ID
        commit = driver.commit("g", {("t", 0): 1}, member_id=second, generation=generation, instance_id="b")
        assert commit.topics[0].partitions[0].error_code == ErrorCode.FENCED_INSTANCE_ID
        assert driver.leave("g", (second, "b")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
        assert driver.heartbeat("g", newer, generation, "b") == ErrorCode.NONE

    def test_the_new_id_survives_the_coordinator(self) -> None:
        driver = GroupDriver()
        _first, second, generation = static_pair(driver)
        newer = driver.joined(driver.join("g", instance_id="b")).member_id
        driver.reload()
        assert driver.heartbeat("g", newer, generation, "b") == ErrorCode.NONE
        assert driver.heartbeat("g", second, generation, "b") == ErrorCode.FENCED_INSTANCE_ID
        assert driver.synced(driver.sync("g", newer, generation, instance_id="b")).assignment == b"B"

    def test_a_leader_is_told_to_skip_the_assignment(self) -> None:
        driver = GroupDriver()
        _first, second, generation = static_pair(driver)
        answer = driver.joined(driver.join("g", instance_id="a", version=9))
        assert answer.leader == answer.member_id
        assert answer.skip_assignment
        assert {member.member_id for member in answer.members} == {answer.member_id, second}
        assert driver.synced(driver.sync("g", answer.member_id, generation, instance_id="a")).assignment == b"A"

    def test_a_leader_that_cannot_be_told_so_is_not_told_that_it_leads(self) -> None:
        driver = GroupDriver()
        first, _second, _generation = static_pair(driver)
        answer = driver.joined(driver.join("g", instance_id="a", version=8))
        assert (answer.leader, answer.members) == (first, [])
        again = driver.join("g", answer.member_id, instance_id="a")
        assert driver.waits(again), "it does lead, so its join means a rebalance"

    def test_it_owns_nothing_yet_and_that_is_no_change(self) -> None:
        driver = GroupDriver()
        options = {"protocols": {"cooperative-sticky": subscription("t", owned={"t": [0, 1]})}}
        static_pair(driver, **options)
        answer = driver.joined(driver.join("g", instance_id="b", protocols={"cooperative-sticky": subscription("t")}))
        assert answer.error_code == ErrorCode.NONE
        assert driver.state("g") == "Stable"

    @pytest.mark.parametrize(
        "protocols",
        [
            {"range": subscription("u")},
            {"range": b""},
            {"range": b"\0"},
            {"range": b"\xff\xff"},
            {"sticky": subscription("t"), "range": subscription("u")},
        ],
    )
    def test_who_wants_something_else_causes_a_rebalance(self, protocols: dict[str, bytes]) -> None:
        driver = GroupDriver()
        first, _second, generation = static_pair(driver)
        waiting = driver.join("g", instance_id="b", protocols=protocols)
        assert driver.waits(waiting)
        assert driver.heartbeat("g", first, generation, "a") == ErrorCode.REBALANCE_IN_PROGRESS

    def test_other_kinds_of_group_compare_the_bytes(self) -> None:
        driver = GroupDriver()
        options = {"protocol_type": "connect", "protocols": {"default": b"one"}}
        static_pair(driver, **options)
        assert not driver.waits(driver.join("g", instance_id="b", **options))  # type: ignore[arg-type]
        assert driver.waits(driver.join("g", instance_id="b", protocol_type="connect", protocols={"default": b"two"}))

    def test_its_session_begins_anew(self) -> None:
        driver = GroupDriver()
        first, second, generation = static_pair(driver)
        driver.advance(SESSION_MS - 1)
        driver.heartbeat("g", first, generation, "a")
        newer = driver.joined(driver.join("g", instance_id="b")).member_id
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat("g", newer, generation, "b") == ErrorCode.NONE
        assert ("session", "g", second) not in driver.timers


class TestWhileTheGroupRebalances:
    def test_the_newer_one_takes_the_waiting_ones_place(self) -> None:
        driver = GroupDriver()
        first, second, generation = static_pair(driver)
        older = driver.join("g", first, instance_id="a")
        assert driver.waits(older)
        newer = driver.join("g", instance_id="a")
        assert driver.joined(older).error_code == ErrorCode.FENCED_INSTANCE_ID
        driver.join("g", second, instance_id="b")
        answer = driver.joined(newer)
        assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, generation + 1)
        assert answer.leader == answer.member_id

    def test_the_last_one_missing_comes_back_restarted(self) -> None:
        driver = GroupDriver()
        first, _second, generation = static_pair(driver)
        waiting = driver.join("g", first, instance_id="a")
        newer = driver.join("g", instance_id="b")
        assert driver.joined(waiting).generation_id == generation + 1
        assert driver.joined(newer).generation_id == generation + 1

    def test_before_the_division_another_round_begins(self) -> None:
        """The leader divides among ids of which one is no more."""
        driver = GroupDriver()
        first, second, generation = static_pair(driver)
        driver.join("g", first, instance_id="a")
        driver.join("g", second, instance_id="b")
        parked = driver.sync("g", second, generation + 1, instance_id="b")
        newer = driver.join("g", instance_id="b")
        assert driver.synced(parked).error_code == ErrorCode.FENCED_INSTANCE_ID
        assert driver.waits(newer)
        sync = driver.sync("g", first, generation + 1, {first: b"A", second: b"B"}, instance_id="a")
        assert driver.synced(sync).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    def test_who_is_away_keeps_its_place_until_its_session_ends(self) -> None:
        driver = GroupDriver()
        options = {"session_ms": 1_000_000}
        first, second, generation = static_pair(driver, **options)
        waiting = driver.join("g", first, instance_id="a", session_ms=1_000_000)
        driver.advance(60_000)
        answer = driver.joined(waiting)
        assert {member.member_id for member in answer.members} == {first, second}
        assert answer.generation_id == generation + 1
        driver.sync("g", first, generation + 1, {first: b"A", second: b"B"}, instance_id="a")
        back = driver.joined(driver.join("g", instance_id="b", session_ms=1_000_000))
        assert driver.synced(driver.sync("g", back.member_id, generation + 1, instance_id="b")).assignment == b"B"

    def test_a_leader_that_is_away_does_not_lead(self) -> None:
        driver = GroupDriver()
        first, second, generation = static_pair(driver, session_ms=1_000_000)
        waiting = driver.join("g", instance_id="c", session_ms=1_000_000)
        driver.join("g", second, instance_id="b", session_ms=1_000_000)
        driver.advance(60_000)
        answer = driver.joined(waiting)
        assert answer.leader == second
        assert answer.generation_id == generation + 1
        assert first in str(driver.describe("g").members)

    def test_when_all_are_away_the_group_waits_for_their_sessions(self) -> None:
        driver = GroupDriver()
        first, second, _generation = static_pair(driver, session_ms=200_000)
        driver.leave("g", ("", "b"))
        driver.advance(199_999)
        assert driver.state("g") == "PreparingRebalance"
        assert first in str(driver.describe("g").members)
        driver.advance(1)
        assert driver.state("g") == "Empty"
        assert second not in str(driver.describe("g").members)


class TestLeaving:
    def test_an_administrator_removes_an_instance(self) -> None:
        driver = GroupDriver()
        first, second, generation = static_pair(driver)
        answer = driver.leave("g", ("", "b"))
        assert answer.members[0].error_code == ErrorCode.NONE
        assert answer.members[0].group_instance_id == "b"
        assert driver.heartbeat("g", first, generation, "a") == ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.heartbeat("g", second, generation, "b") == ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize(
        ("member_id", "instance_id", "code"),
        [
            ("", "z", ErrorCode.UNKNOWN_MEMBER_ID),
            ("a-id1", "b", ErrorCode.FENCED_INSTANCE_ID),
            ("a-id1", "z", ErrorCode.UNKNOWN_MEMBER_ID),
            ("a-id1", "a", ErrorCode.NONE),
            ("a-id1", None, ErrorCode.NONE),
        ],
    )
    def test_by_both_names(self, member_id: str, instance_id: str | None, code: ErrorCode) -> None:
        driver = GroupDriver()
        first, _second, _generation = static_pair(driver)
        assert first == "a-id1"
        assert driver.leave("g", (member_id, instance_id)).members[0].error_code == code


def test_an_instance_nobody_knows_cannot_come_with_a_member_id() -> None:
    driver = GroupDriver()
    static_pair(driver)
    assert driver.joined(driver.join("g", "a-id1", instance_id="z")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_for_a_dynamic_member_is_not_for_a_static_one() -> None:
    driver = GroupDriver()
    pending = driver.joined(driver.join("g")).member_id
    assert driver.joined(driver.join("g", pending, instance_id="i")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
