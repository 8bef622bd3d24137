"""JoinGroup: who gets in, under which id, and when the round is over."""

from __future__ import annotations

import pytest
from group_driver import GroupDriver, subscription

from tidelog.coordinators.groups import classic_groups
from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.rebalance import NEWCOMER_WAIT_MS
from tidelog.errors import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol


@pytest.mark.parametrize("version", range(10))
def test_a_newcomer_is_first_given_an_id_from_version_4(version: int) -> None:
    driver = GroupDriver()
    answer = driver.joined(driver.join("g", version=version))
    assert answer.member_id == "client-id1"
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert answer.generation_id == -1
        assert driver.joined(driver.join("g", answer.member_id, version=version)).error_code == ErrorCode.NONE
    else:
        assert answer.error_code == ErrorCode.NONE
        assert answer.generation_id == 1


def test_a_static_newcomer_needs_no_second_round() -> None:
    driver = GroupDriver()
    answer = driver.joined(driver.join("g", instance_id="i"))
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id == "i-id1"
    assert [member.group_instance_id for member in answer.members] == ["i"]


def test_an_id_that_was_given_out_and_never_used_is_forgotten() -> None:
    driver = GroupDriver()
    member_id = driver.joined(driver.join("g")).member_id
    driver.advance(driver.config.min_session_timeout_ms)
    assert driver.listed() == {"g": ("Empty", "classic")}
    driver.advance(10_000)
    assert driver.listed() == {}
    assert driver.joined(driver.join("g", member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.log == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"range": bytes(2 << 20)}}, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [0, 5, 7, 9])
def test_what_cannot_be_joined(options: dict[str, object], code: ErrorCode, version: int) -> None:
    driver = GroupDriver()
    answer = driver.joined(driver.join(**{"group_id": "g", "version": version, **options}))  # type: ignore[arg-type]
    assert answer.error_code == code
    assert answer.generation_id == -1
    assert answer.protocol_name == (None if version >= 7 else "")
    assert driver.listed() == {}, "a refused join must leave nothing behind"


def test_the_first_member_leads_and_alone_learns_of_the_others() -> None:
    driver = GroupDriver()
    first, _ = driver.enter("g")
    second, waiting = driver.enter("g")
    assert driver.waits(waiting), "the first member has to join again"
    assert driver.heartbeat("g", first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    leads = driver.joined(driver.join("g", first))
    follows = driver.joined(waiting)
    assert (leads.leader, follows.leader) == (first, first)
    assert (leads.generation_id, follows.generation_id) == (2, 2)
    assert [member.member_id for member in leads.members] == [first, second]
    assert follows.members == []
    assert leads.protocol_type == "consumer"
    assert leads.protocol_name == "range"


class TestTheFirstRoundOfAGroup:
    """It waits for more members: a service that starts with ten of them should not rebalance ten times."""

    CONFIG = GroupConfig(initial_rebalance_delay_ms=3000)

    def test_it_lasts_the_delay(self) -> None:
        driver = GroupDriver(self.CONFIG)
        _member_id, ticket = driver.enter("g")
        driver.advance(2999)
        assert driver.waits(ticket)
        driver.advance(1)
        assert driver.joined(ticket).generation_id == 1

    def test_each_newcomer_prolongs_it(self) -> None:
        driver = GroupDriver(self.CONFIG)
        first, joined_first = driver.enter("g")
        driver.advance(2000)
        second, joined_second = driver.enter("g")
        driver.advance(3999)
        assert driver.waits(joined_first)
        driver.advance(1)
        assert driver.joined(joined_first).generation_id == 1
        assert [member.member_id for member in driver.joined(joined_first).members] == [first, second]
        assert driver.joined(joined_second).generation_id == 1

    def test_never_beyond_the_rebalance_timeout(self) -> None:
        driver = GroupDriver(self.CONFIG)
        _member_id, first = driver.enter("g", rebalance_ms=10_000)
        for _ in range(9):
            driver.advance(1000)
            driver.enter("g", rebalance_ms=10_000)
        assert driver.waits(first)
        driver.advance(1000)
        assert len(driver.joined(first).members) == 10

    def test_a_group_that_is_deserted_meanwhile_becomes_empty(self) -> None:
        driver = GroupDriver(self.CONFIG)
        member_id, ticket = driver.enter("g")
        assert driver.leave("g", (member_id, None)).members[0].error_code == ErrorCode.NONE
        assert driver.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        driver.advance(3000)
        assert driver.state("g") == "Empty"

    def test_a_group_that_was_left_waits_again(self) -> None:
        driver = GroupDriver(self.CONFIG)
        member_id, ticket = driver.enter("g")
        driver.advance(3000)
        driver.settle("g", {member_id: ticket})
        driver.leave("g", (member_id, None))
        assert driver.state("g") == "Empty"
        _member_id, ticket = driver.enter("g")
        driver.advance(2999)
        assert driver.waits(ticket)
        driver.advance(1)
        assert driver.joined(ticket).generation_id == 3


class TestTheProtocol:
    @pytest.mark.parametrize(
        ("offers", "chosen"),
        [
            ([["a", "b"]], "a"),
            ([["a", "b"], ["b", "a"], ["b", "a"]], "b"),
            ([["a", "b"], ["b"]], "b"),
            ([["a", "b", "c"], ["c", "b"], ["b", "c"]], "b"),
            ([["a", "b"], ["b", "a"]], "a"),
        ],
    )
    def test_each_member_votes_for_its_favourite_of_those_all_support(
        self, offers: list[list[str]], chosen: str
    ) -> None:
        driver = GroupDriver(GroupConfig(initial_rebalance_delay_ms=1000))
        tickets = [driver.enter("g", protocols={name: name.encode() for name in offer})[1] for offer in offers]
        driver.advance(10_000)
        answer = driver.joined(tickets[0])
        assert answer.protocol_name == chosen
        assert {member.metadata for member in answer.members} == {chosen.encode()}

    def test_who_has_none_in_common_is_refused(self) -> None:
        driver = GroupDriver()
        driver.stable_group("g", protocols={"a": b"", "b": b""})
        for options in ({"protocols": {"c": b""}}, {"protocol_type": "connect", "protocols": {"a": b""}}):
            answer = driver.joined(driver.join("g", **options))
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.state("g") == "Stable"

    def test_common_to_one_member_each_is_not_common_to_all(self) -> None:
        driver = GroupDriver()
        driver.stable_group("g", 2, protocols={"a": b"", "b": b""})
        third, waiting = driver.enter("g", protocols={"b": b""})
        assert driver.waits(waiting)
        assert driver.joined(driver.join("g", protocols={"a": b""})).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.leave("g", (third, None)).members[0].error_code == ErrorCode.NONE
        assert driver.joined(driver.join("g", protocols={"a": b""})).error_code == ErrorCode.MEMBER_ID_REQUIRED

    def test_a_single_member_may_change_its_mind_altogether(self) -> None:
        driver = GroupDriver()
        (member_id,), _ = driver.stable_group("g", protocols={"a": b""})
        answer = driver.joined(driver.join("g", member_id, protocols={"z": b""}))
        assert answer.protocol_name == "z"

    def test_a_group_that_everybody_left_may_become_of_another_type(self) -> None:
        driver = GroupDriver()
        (member_id,), _ = driver.stable_group("g", protocols={"a": b""})
        driver.leave("g", (member_id, None))
        _, ticket = driver.enter("g", protocol_type="connect", protocols={"x": b""})
        assert driver.joined(ticket).protocol_type == "connect"

    def test_a_name_that_is_given_twice_counts_once(self) -> None:
        driver = GroupDriver()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="a", metadata=data) for data in (b"1", b"2")],
        )
        first = driver.joined(driver.ask(request, 3))
        assert [member.metadata for member in first.members] == [b"1"]
        assert driver.joined(driver.join("g", protocols={"a": b""})).error_code == ErrorCode.MEMBER_ID_REQUIRED


class TestJoiningAgain:
    def test_a_follower_that_wants_nothing_new_is_told_the_generation(self) -> None:
        driver = GroupDriver()
        (_leader, follower), generation = driver.stable_group("g", 2)
        answer = driver.joined(driver.join("g", follower))
        assert (answer.error_code, answer.generation_id, answer.members) == (ErrorCode.NONE, generation, [])
        assert driver.state("g") == "Stable"

    def test_the_leader_forces_a_rebalance(self) -> None:
        """It has seen that the partitions of a topic have changed."""
        driver = GroupDriver()
        (leader, follower), generation = driver.stable_group("g", 2)
        ticket = driver.join("g", leader)
        assert driver.waits(ticket)
        assert driver.state("g") == "PreparingRebalance"
        driver.join("g", follower)
        assert driver.joined(ticket).generation_id == generation + 1

    @pytest.mark.parametrize(
        "protocols",
        [{"range": subscription("t", "u")}, {"range": subscription("t"), "sticky": b""}],
    )
    def test_a_follower_that_changed_does_so_too(self, protocols: dict[str, bytes]) -> None:
        driver = GroupDriver()
        (_leader, follower), _generation = driver.stable_group("g", 2)
        assert driver.waits(driver.join("g", follower, protocols=protocols))
        assert driver.state("g") == "PreparingRebalance"

    def test_whoever_missed_the_answer_gets_it_again(self) -> None:
        driver = GroupDriver()
        leader, ticket = driver.enter("g")
        again = driver.joined(driver.join("g", leader))
        assert again == driver.joined(ticket)
        assert driver.state("g") == "CompletingRebalance"

    def test_whoever_changes_before_the_division_starts_another_round(self) -> None:
        driver = GroupDriver()
        first, _ = driver.enter("g")
        _, waiting = driver.enter("g")
        driver.join("g", first)
        generation = driver.joined(waiting).generation_id
        parked = driver.sync("g", driver.joined(waiting).member_id, generation)
        assert driver.waits(driver.join("g", first, protocols={"range": subscription("u")}))
        assert driver.synced(parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    def test_the_first_of_two_joins_is_not_left_without_an_answer(self) -> None:
        driver = GroupDriver()
        first, _ = driver.enter("g")
        second, waiting = driver.enter("g")
        again = driver.join("g", second)
        assert driver.joined(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        driver.join("g", first)
        assert driver.joined(again).error_code == ErrorCode.NONE


class TestTheSize:
    CONFIG = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)

    def test_nobody_gets_in_once_it_is_full(self) -> None:
        driver = GroupDriver(self.CONFIG)
        driver.stable_group("g", 2)
        assert driver.joined(driver.join("g")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.state("g") == "Stable"

    def test_a_static_member_finds_its_own_place(self) -> None:
        driver = GroupDriver(self.CONFIG)
        tickets = {}
        first = driver.joined(driver.join("g", instance_id="a")).member_id
        second = driver.join("g", instance_id="b")
        tickets[first] = driver.join("g", first, instance_id="a")
        tickets[driver.joined(second).member_id] = second
        driver.settle("g", tickets)
        assert driver.joined(driver.join("g", instance_id="b")).error_code == ErrorCode.NONE

    def test_the_slowest_are_left_out(self) -> None:
        driver = GroupDriver(GroupConfig(initial_rebalance_delay_ms=0, max_size=3))
        (first, second, third), _ = driver.stable_group("g", 3)
        driver.config = self.CONFIG
        driver.reload()
        assert driver.state("g") == "PreparingRebalance", "there are too many, so all have to join again"
        assert driver.waits(driver.join("g", third))
        assert driver.waits(driver.join("g", second))
        assert driver.joined(driver.join("g", first)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_ids_that_nobody_uses_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(classic_groups, "PENDING_MEMBERS_MAX", 2)
        driver = GroupDriver()
        codes = [driver.joined(driver.join("g")).error_code for _ in range(3)]
        assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_newcomer_that_is_never_answered_is_told_to_try_again() -> None:
    driver = GroupDriver()
    first, _ = driver.enter("g", rebalance_ms=2 * NEWCOMER_WAIT_MS, session_ms=1_800_000)
    _, waiting = driver.enter("g")
    driver.advance(NEWCOMER_WAIT_MS + 10_000)
    assert driver.joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join("g", first)).error_code == ErrorCode.NONE


def test_version_0_has_one_timeout_for_both() -> None:
    driver = GroupDriver()
    first = driver.joined(driver.join("g", version=0, rebalance_ms=-1)).member_id
    waiting = driver.join("g", version=0, rebalance_ms=-1)
    driver.heartbeat("g", first, 1)
    driver.advance(9999)
    assert driver.waits(waiting)
    driver.advance(1)
    assert driver.joined(waiting).leader == driver.joined(waiting).member_id
