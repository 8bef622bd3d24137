"""What members of groups of the newer protocol are told, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_readers import (
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    ConsumerDriver,
    Reader,
    numbers,
    owned_message,
    owned_of,
    settle,
)
from group_driver import id_of

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions

# --- joining ---


def test_the_first_member_gets_everything_at_once() -> None:
    driver = ConsumerDriver(t=3)
    reply = driver.enter_new("m1")
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (ErrorCode.NONE, "m1", 1)
    assert reply.heartbeat_interval_ms == 5000
    assert owned_of(reply, driver) == {("t", 0), ("t", 1), ("t", 2)}


def test_joining_writes_a_record_of_each_kind() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    assert driver.kinds_since(0) == ["5", "4", "3", "7", "6", "8"]


def test_before_version_1_the_coordinator_chooses_the_member_id() -> None:
    driver = ConsumerDriver()
    reply = driver.enter_new("", version=0)
    assert reply.error_code == ErrorCode.NONE
    assert reply.member_id
    assert driver.beat(reply.member_id, reply.member_epoch, version=0).error_code == ErrorCode.NONE


def test_nothing_subscribed_is_a_subscription_too() -> None:
    driver = ConsumerDriver()
    reply = driver.enter_new("m1", subscribed_topic_names=[])
    assert (reply.error_code, reply.member_epoch) == (ErrorCode.NONE, 1)
    assert owned_of(reply, driver) == set()


def test_a_topic_that_does_not_exist_gives_nothing() -> None:
    driver = ConsumerDriver()
    assert owned_of(driver.enter_new("m1", "nowhere"), driver) == set()


def test_joining_twice_changes_nothing() -> None:
    driver = ConsumerDriver()
    first = driver.enter_new("m1")
    mark = len(driver.log)
    again = driver.enter_new("m1")
    assert again == first
    assert driver.kinds_since(mark) == []


def test_the_second_member_waits_for_what_the_first_lets_go_of() -> None:
    driver = ConsumerDriver(t=4)
    first, second = Reader(driver, "m1"), Reader(driver, "m2")
    first.beat()
    first.obey()
    driver.advance(1000)
    second.beat()
    second.obey()
    assert (second.epoch, second.reading) == (2, set()), "it is in the new epoch, and has nothing yet"
    first.beat()
    assert first.epoch == 1, "who has something to let go of stays in its epoch"
    assert len(first.told or ()) == 2
    second.beat()
    second.obey()
    assert second.reading == set(), "the first has not said that it let go"
    first.obey()
    first.beat()
    assert first.epoch == 2
    second.beat()
    second.obey()
    assert len(second.reading) == 2
    assert not first.reading & second.reading


# --- what a heartbeat says, and what is answered ---


def test_a_settled_member_is_told_nothing_and_nothing_is_stored() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    mark = len(driver.log)
    reply = driver.beat("m1", 1)
    assert (reply.error_code, reply.member_epoch, reply.assignment) == (ErrorCode.NONE, 1, None)
    assert driver.kinds_since(mark) == []


def test_one_who_says_everything_is_told_everything() -> None:
    driver = ConsumerDriver(t=1)
    driver.enter_new("m1")
    everything: dict[str, Any] = {
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": ["t"],
        "topic_partitions": owned_message({("t", 0)}),
    }
    assert owned_of(driver.beat("m1", 1, **everything), driver) == {("t", 0)}
    for left_out in everything:
        said = {name: value for name, value in everything.items() if name != left_out}
        assert driver.beat("m1", 1, **said).assignment is None


@pytest.mark.parametrize(
    "change",
    [
        {"rack_id": "r2"},
        {"rebalance_timeout_ms": 1234},
        {"server_assignor": "range"},
        {"client_id": "another"},
    ],
)
def test_what_a_member_changes_of_itself_is_kept_without_dividing_anew(change: dict[str, Any]) -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    mark = len(driver.log)
    assert driver.beat("m1", 1, **change).member_epoch == 1
    assert driver.kinds_since(mark) == ["5"]
    assert driver.beat("m1", 1, **change).error_code == ErrorCode.NONE
    assert driver.kinds_since(mark) == ["5"], "said twice, kept once"


def test_another_subscription_divides_anew() -> None:
    driver = ConsumerDriver(t=1, u=1)
    driver.enter_new("m1", "t")
    driver.advance(1000)
    reply = driver.beat("m1", 1, subscribed_topic_names=["u"], topic_partitions=[])
    assert reply.member_epoch == 2
    assert owned_of(reply, driver) == {("u", 0)}


def test_what_is_no_longer_subscribed_is_taken_away_even_before_it_is_divided_anew() -> None:
    driver = ConsumerDriver(t=2, u=2)
    readers = [Reader(driver, f"m{number}", "t", "u") for number in range(3)]
    settle(readers)
    readers[0].subscribe("t", "u", "new")  # which makes a new target, so that the next change has to wait for one
    readers[0].beat()
    reader = next(reader for reader in readers[1:] if any(topic == "u" for topic, _number in reader.reading))
    reader.subscribe("t")
    reader.beat()
    assert all(topic == "t" for topic, _number in reader.told or ())
    settle(readers)
    assert all(topic == "t" for topic, _number in reader.reading)
    assert set.union(*(other.reading for other in readers)) == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}


# --- refusals ---


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId"),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST, "MemberId"),
        ({"member_id": "", "member_epoch": 1, "version": 0}, ErrorCode.INVALID_REQUEST, "MemberId"),
        ({"member_id": "", "member_epoch": -1, "version": 0}, ErrorCode.INVALID_REQUEST, "MemberId"),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId"),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST, "RackId"),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs"),
        ({"rebalance_timeout_ms": -2}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions"),
        (
            {"topic_partitions": [TopicPartitions(topic_id=id_of("t"), partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions",
        ),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST, "SubscribedTopicNames"),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch"),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "uniform, range"),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION, "never closed"),
        ({"member_id": "m" * 8192}, ErrorCode.INVALID_REQUEST, "at most"),
        ({"group_id": "g" * 8192}, ErrorCode.INVALID_REQUEST, "at most"),
        ({"instance_id": "i" * 8192}, ErrorCode.INVALID_REQUEST, "at most"),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "not found"),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "not found"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_leaves_nothing(
    fields: dict[str, Any], code: ErrorCode, says: str
) -> None:
    driver = ConsumerDriver()
    request: dict[str, Any] = {
        "member_id": "m1",
        "member_epoch": 0,
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **fields,
    }
    reply = driver.beat(request.pop("member_id"), request.pop("member_epoch"), **request)
    assert reply.error_code == code
    assert says in (reply.error_message or "")
    assert not driver.log
    assert not [key for key in driver.timers if "consumer" in str(key)]


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 2, ErrorCode.FENCED_MEMBER_EPOCH),
        ("m1", 99, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_strangers_and_members_of_other_epochs_are_refused(member_id: str, epoch: int, code: ErrorCode) -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    mark = len(driver.log)
    assert driver.beat(member_id, epoch).error_code == code
    assert driver.kinds_since(mark) == []


def one_epoch_ahead() -> tuple[ConsumerDriver, set[int]]:
    """m1 was moved from epoch 1 to 2, and did not get to know of it. It has what is told."""
    driver = ConsumerDriver(t=2, u=1)
    driver.enter_new("m1", "t")
    driver.advance(1000)
    driver.beat("m1", 1, subscribed_topic_names=["t", "u"])
    group = driver.group()
    assert group.members["m1"].position.epoch == 2
    return driver, numbers(group.members["m1"].position.assigned)


def test_a_lost_reply_does_not_cost_a_member_its_place() -> None:
    driver, assigned = one_epoch_ahead()
    owned = owned_message({("t", number) for number in assigned})
    reply = driver.beat("m1", 1, topic_partitions=owned)
    assert (reply.error_code, reply.member_epoch) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("said", [None, [TopicPartitions(topic_id=id_of("t"), partitions=[0, 1, 7])]])
def test_one_epoch_behind_is_only_for_those_who_have_nothing_else(said: list[TopicPartitions] | None) -> None:
    driver, _assigned = one_epoch_ahead()
    assert driver.beat("m1", 1, topic_partitions=said).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_and_gets_its_share_back() -> None:
    driver = ConsumerDriver(t=3)
    driver.enter_new("m1")
    assert driver.beat("m1", 7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert len(owned_of(driver.enter_new("m1"), driver)) == 3


def test_a_group_that_is_full() -> None:
    driver = ConsumerDriver(GroupConfig(consumer_max_size=1))
    driver.enter_new("m1")
    assert driver.enter_new("m2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.enter_new("m1").error_code == ErrorCode.NONE
    assert driver.beat("m1", -1).error_code == ErrorCode.NONE
    assert driver.enter_new("m2").error_code == ErrorCode.NONE


def test_a_broker_that_does_not_offer_the_protocol() -> None:
    driver = ConsumerDriver(GroupConfig(rebalance_protocols=frozenset({"classic"})))
    assert driver.enter_new("m1").error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_subscription_that_could_not_be_stored_is_refused_before_it_is_tried() -> None:
    driver = ConsumerDriver(GroupConfig(record_bytes_max=10_000))
    reply = driver.enter_new("m1", *(f"topic-{number}" for number in range(2000)))
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert "message.max.bytes" in (reply.error_message or "")
    assert not driver.log


# --- leaving ---


def test_what_a_leaving_member_had_goes_to_the_others() -> None:
    driver = ConsumerDriver(t=4)
    readers = [Reader(driver, "m1"), Reader(driver, "m2")]
    settle(readers)
    mark = len(driver.log)
    assert readers[0].leave() == ErrorCode.NONE
    assert driver.kinds_since(mark) == ["-8", "-7", "-5", "3"]
    settle(readers[1:])
    assert len(readers[1].reading) == 4


def test_the_last_one_leaves_a_group_that_remembers_its_epoch() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    driver.beat("m1", -1)
    group = driver.group()
    assert (group.state, group.epoch) == ("Empty", 2)
    assert group.topics == {}
    assert driver.enter_new("m2").member_epoch == 3


def test_leaving_is_answered_with_the_epoch_that_means_it() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    reply = driver.beat("m1", -1)
    assert (reply.member_id, reply.member_epoch) == ("m1", -1)
    assert not [key for key in driver.timers if "m1" in str(key)], "nobody waits for it any more"


# --- timeouts ---


def test_a_silent_member_is_thrown_out_when_its_session_ends() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    driver.advance(44_999)
    assert driver.beat("m1", 1).error_code == ErrorCode.NONE
    driver.advance(44_999)
    assert driver.beat("m1", 1).error_code == ErrorCode.NONE, "a heartbeat begins the session anew"
    driver.advance(45_000)
    assert driver.beat("m1", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_let_go_is_thrown_out_though_it_reports() -> None:
    driver = ConsumerDriver(t=2)
    slow, other = Reader(driver, "m1"), Reader(driver, "m2")
    slow.beat()
    slow.obey()
    driver.advance(1000)
    other.beat()
    slow.beat()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        assert slow.beat() == ErrorCode.NONE
        other.beat()
        driver.advance(HEARTBEAT_MS)
    assert slow.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    settle([other])
    assert len(other.reading) == 2


def test_a_member_that_lets_go_in_time_stays() -> None:
    driver = ConsumerDriver(t=2)
    readers = [Reader(driver, "m1"), Reader(driver, "m2")]
    settle(readers, rounds=REBALANCE_MS // HEARTBEAT_MS + 5)
    assert not [key for key in driver.timers if "revoke" in str(key)]
    assert [len(reader.reading) for reader in readers] == [1, 1]


def test_after_a_restart_everybody_has_a_whole_session() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    driver.advance(40_000)
    driver.reload()
    driver.advance(44_000)
    assert driver.beat("m1", 1).error_code == ErrorCode.NONE
    driver.reload()
    driver.advance(45_000)
    assert driver.beat("m1", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_restart_letting_go_is_still_waited_for() -> None:
    driver = ConsumerDriver(t=2)
    slow, other = Reader(driver, "m1"), Reader(driver, "m2")
    slow.beat()
    slow.obey()
    driver.advance(1000)
    other.beat()
    slow.beat()
    driver.reload()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        slow.beat()
        driver.advance(HEARTBEAT_MS)
    assert slow.beat() == ErrorCode.UNKNOWN_MEMBER_ID


# --- assignors ---


def test_most_members_decide_on_the_assignor() -> None:
    driver = ConsumerDriver(t=4, u=4)
    assert driver.enter_new("m1", "t", "u").error_code == ErrorCode.NONE
    assert driver.consumer_describe().assignor_name == "uniform"
    driver.enter_new("m2", "t", "u", server_assignor="range")
    assert driver.consumer_describe().assignor_name == "range", "one wish against none"
    driver.enter_new("m3", "t", "u", server_assignor="uniform")
    assert driver.consumer_describe().assignor_name == "uniform", "of equally many the first configured"


@pytest.mark.parametrize(("configured", "used"), [(("range",), "range"), (("my.own.Assignor",), "uniform")])
def test_the_first_configured_assignor_that_is_known_is_used(configured: tuple[str, ...], used: str) -> None:
    driver = ConsumerDriver(GroupConfig(consumer_assignors=configured))
    driver.enter_new("m1")
    assert driver.consumer_describe().assignor_name == used


def test_the_longest_ids_that_are_allowed_can_be_stored() -> None:
    driver = ConsumerDriver()
    reply = driver.enter_new("\U0001f3c6" * 8191, group_id="\u6f6e" * 8191, instance_id="\U0001f3c6" * 8191)
    assert reply.error_code == ErrorCode.NONE


def test_range_gives_equal_numbers_of_all_topics() -> None:
    driver = ConsumerDriver(t=4, u=4)
    driver.enter_new("m1", "t", "u", server_assignor="range")
    driver.advance(1000)
    driver.enter_new("m2", "t", "u", server_assignor="range")
    target = driver.group().target
    assert numbers(target["m1"], "t") == numbers(target["m1"], "u") == {0, 1}
    assert numbers(target["m2"], "t") == numbers(target["m2"], "u") == {2, 3}


# --- commits ---


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "code"),
    [
        ("m1", 1, 9, ErrorCode.NONE),
        ("m1", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("stranger", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_commits_are_for_members_in_their_epoch(member_id: str, epoch: int, version: int, code: ErrorCode) -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    response = driver.commit(GROUP, {("t", 0): 5}, member_id=member_id, generation=epoch, version=version)
    assert response.topics[0].partitions[0].error_code == code
    assert driver.offsets(GROUP) == ({("t", 0): 5} if code == ErrorCode.NONE else {})


def test_anybody_may_commit_to_a_group_that_is_empty() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    driver.beat("m1", -1)
    driver.commit(GROUP, {("t", 0): 5})
    assert driver.offsets(GROUP) == {("t", 0): 5}
