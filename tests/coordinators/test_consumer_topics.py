"""Topics that appear, grow and go, and members that subscribe by pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_readers import GROUP, HEARTBEAT_MS, ConsumerDriver, Reader, owned_of, settle
from group_driver import subscription

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    import pytest


def changed(driver: ConsumerDriver, **counts: int | None) -> None:
    """Topics with new numbers of partitions; None deletes one."""
    for name, count in counts.items():
        if count is None:
            del driver.topics.counts[name]
        else:
            driver.topics.counts[name] = count
    driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms))


def test_partitions_that_are_added_are_given_to_somebody() -> None:
    driver = ConsumerDriver(t=2)
    readers = [Reader(driver, "m1"), Reader(driver, "m2")]
    settle(readers)
    mark = len(driver.log)
    changed(driver, t=6)
    assert driver.kinds_since(mark) == ["4", "3"]
    settle(readers)
    assert sorted(len(reader.reading) for reader in readers) == [3, 3]


def test_a_topic_that_appears_is_read_by_those_who_waited_for_it() -> None:
    driver = ConsumerDriver(other=1)
    reader = Reader(driver, "m1", "t")
    settle([reader])
    assert reader.reading == set()
    changed(driver, t=2)
    settle([reader])
    assert reader.reading == {("t", 0), ("t", 1)}


def test_a_topic_that_goes_is_let_go_of() -> None:
    driver = ConsumerDriver(t=2, u=2)
    reader = Reader(driver, "m1", "t", "u")
    settle([reader])
    changed(driver, u=None)
    settle([reader])
    assert reader.reading == {("t", 0), ("t", 1)}


def test_a_change_that_concerns_nobody_changes_nothing() -> None:
    driver = ConsumerDriver(t=2)
    settle([Reader(driver, "m1")])
    mark = len(driver.log)
    changed(driver, other=5)
    assert driver.kinds_since(mark) == []


def test_a_group_without_members_does_not_follow_topics() -> None:
    driver = ConsumerDriver(t=2)
    reader = Reader(driver, "m1")
    settle([reader])
    reader.leave()
    mark = len(driver.log)
    changed(driver, t=5)
    assert driver.kinds_since(mark) == []


def test_a_change_that_was_not_told_is_noticed_with_the_next_one() -> None:
    driver = ConsumerDriver(t=2)
    driver.enter_new("m1")
    driver.topics.counts["t"] = 3
    driver.advance(HEARTBEAT_MS)
    driver.enter_new("m2", "t", "u")
    assert driver.group().topics["t"].partitions == 3


def test_a_change_while_the_groups_were_loaded_is_noticed_with_the_first_heartbeat() -> None:
    driver = ConsumerDriver(t=2)
    driver.enter_new("m1")
    driver.topics.counts["t"] = 3
    driver.reload()
    assert driver.beat("m1", 1).member_epoch == 1
    driver.advance(HEARTBEAT_MS)
    assert len(owned_of(driver.beat("m1", 1), driver)) == 3


# --- patterns ---


def test_a_pattern_subscribes_to_what_matches_it() -> None:
    driver = ConsumerDriver(None, **{"orders-eu": 1, "orders-us": 1, "users": 1})
    reply = driver.enter_new("m1", subscribed_topic_names=None, subscribed_topic_regex="orders-.*")
    assert owned_of(reply, driver) == {("orders-eu", 0), ("orders-us", 0)}


def test_a_pattern_and_names_add_up() -> None:
    driver = ConsumerDriver(None, **{"orders-eu": 1, "users": 1, "other": 1})
    reply = driver.enter_new("m1", "users", subscribed_topic_regex="orders-.*")
    assert owned_of(reply, driver) == {("orders-eu", 0), ("users", 0)}


def test_topics_that_appear_are_matched() -> None:
    driver = ConsumerDriver(None, **{"orders-eu": 1})
    driver.enter_new("m1", subscribed_topic_names=[], subscribed_topic_regex="orders-.*")
    changed(driver, **{"orders-us": 2})
    driver.advance(HEARTBEAT_MS)
    assert owned_of(driver.beat("m1", 1), driver) == {("orders-eu", 0), ("orders-us", 0), ("orders-us", 1)}


def test_another_pattern_divides_anew_and_an_empty_one_ends_it() -> None:
    driver = ConsumerDriver(a=1, b=1)
    driver.enter_new("m1", subscribed_topic_names=[], subscribed_topic_regex="a")
    driver.advance(HEARTBEAT_MS)
    reply = driver.beat("m1", 1, subscribed_topic_regex="b", topic_partitions=[])
    assert owned_of(reply, driver) == {("b", 0)}
    driver.advance(HEARTBEAT_MS)
    reply = driver.beat("m1", 2, subscribed_topic_regex="", topic_partitions=[])
    assert owned_of(reply, driver) == set()


def test_a_pattern_that_makes_no_sense_leaves_the_member_as_it_was() -> None:
    driver = ConsumerDriver(a=1)
    driver.enter_new("m1", subscribed_topic_names=[], subscribed_topic_regex="a")
    mark = len(driver.log)
    assert driver.beat("m1", 1, subscribed_topic_regex="(a").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.kinds_since(mark) == []
    assert driver.beat("m1", 1).error_code == ErrorCode.NONE


def test_before_version_1_there_are_no_patterns_and_none_is_taken_away() -> None:
    driver = ConsumerDriver(a=1)
    driver.enter_new("m1", subscribed_topic_names=[], subscribed_topic_regex="a")
    driver.beat("m1", 1, version=0, rebalance_timeout_ms=1)
    assert driver.consumer_describe().members[0].subscribed_topic_regex == "a"


def test_after_a_restart_patterns_match_what_they_matched() -> None:
    driver = ConsumerDriver(None, **{"orders-eu": 1, "users": 1})
    pattern = {"subscribed_topic_names": [], "subscribed_topic_regex": "orders-.*"}
    driver.enter_new("m1", **pattern)
    driver.reload()
    mark = len(driver.log)
    assert driver.beat("m1", 1).member_epoch == 1
    assert driver.kinds_since(mark) == []
    driver.advance(HEARTBEAT_MS)
    driver.enter_new("m2", **pattern)
    assert set(driver.group().topics) == {"orders-eu"}


def test_a_member_that_goes_right_after_a_restart_leaves_the_topics_alone() -> None:
    driver = ConsumerDriver(None, **{"orders-eu": 1, "users": 1})
    driver.enter_new("m1", subscribed_topic_names=[], subscribed_topic_regex="orders-.*")
    driver.advance(HEARTBEAT_MS)
    driver.enter_new("m2", subscribed_topic_names=[], subscribed_topic_regex="users")
    driver.reload()
    driver.leave(GROUP, ("m2", None))
    assert set(driver.group().topics) == {"orders-eu", "users"}, "what patterns match is not known yet"
    changed(driver)
    assert set(driver.group().topics) == {"orders-eu"}


def test_offsets_of_subscribed_topics_are_kept() -> None:
    driver = ConsumerDriver(None, **{"orders-eu": 1, "users": 1})
    driver.enter_new("m1", "users", subscribed_topic_regex="orders-.*")
    groups = driver.shard._consumer
    for topic in ("users", "orders-eu", "orders-us"):
        assert groups.subscribed_to(GROUP, topic) == (topic != "orders-us")
    changed(driver, **{"orders-us": 1})
    assert groups.subscribed_to(GROUP, "orders-us")
    assert not groups.subscribed_to("no such group", "users")


# --- limits ---


def test_many_groups_are_told_of_a_topic_in_portions_that_can_be_stored() -> None:
    driver = ConsumerDriver(GroupConfig(record_bytes_max=2000), t=1)
    for number in range(50):
        driver.enter_new("m1", group_id=f"group-{number}")
    first = len(driver.batches)
    changed(driver, t=2)
    driver.advance(0)
    assert len(driver.batches) > first + 1
    assert max(driver.batches) <= 2000
    groups = driver.replayed().groups.values()
    assert {group.topics["t"].partitions for group in groups} == {2}
    assert {group.epoch for group in groups} == {2}


def test_a_group_that_could_not_be_stored_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    driver = ConsumerDriver(GroupConfig(record_bytes_max=2000), **{"a-1": 1, "b": 1})
    driver.enter_new("m1", group_id="everything", subscribed_topic_names=[], subscribed_topic_regex="a-.*")
    driver.enter_new("m2", "b")
    changed(driver, **{f"a-{number}": 1 for number in range(200)}, b=2)
    assert "everything" in caplog.text
    assert driver.group().topics["b"].partitions == 2
    assert driver.replayed().groups["everything"].topics.keys() == {"a-1"}


def test_a_classic_group_that_could_not_be_stored_does_not_come_about() -> None:
    driver = ConsumerDriver(GroupConfig(initial_rebalance_delay_ms=0, record_bytes_max=4000), t=2)
    driver.enter_new("new")
    metadata = subscription("t", *(f"topic-{number}" for number in range(50)))
    for _ in range(10):
        _member_id, ticket = driver.enter(GROUP, protocols={"range": metadata})
        assert driver.joined(ticket).error_code == ErrorCode.NONE
    driver.beat("new", -1)
    assert driver.consumer_describe().error_code == ErrorCode.NONE
    assert max(driver.batches) <= 4000


def test_more_members_than_one_batch_can_remove_are_removed_in_turns() -> None:
    driver = ConsumerDriver(t=1)
    for number in range(1001):
        driver.enter_new(f"m{number}", subscribed_topic_names=[])
    answers = driver.leave(GROUP, *((f"m{number}", None) for number in range(1001))).members
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 1000 + [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert driver.leave(GROUP, ("m1000", None)).members[0].error_code == ErrorCode.NONE
    assert driver.group().state == "Empty"
