"""What administrators see of groups of the newer protocol, and how they delete them."""

from __future__ import annotations

from consumer_readers import GROUP, ConsumerDriver, Reader, settle
from group_driver import id_of

from tidelog.errors import ErrorCode


def test_a_group_is_shown_with_its_members_and_what_they_have() -> None:
    driver = ConsumerDriver(t=3)
    driver.enter_new("m1", client_id="shop", instance_id="i1", rack_id="r1")
    group = driver.consumer_describe()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m1", "i1", "r1")
    assert (member.member_epoch, member.client_id, member.client_host) == (1, "shop", "/1.2.3.4")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], None)
    assert member.member_type == 1
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, topic.partitions) == (id_of("t"), "t", [0, 1, 2])


def test_states() -> None:
    driver = ConsumerDriver(t=4)
    readers = [Reader(driver, "m1"), Reader(driver, "m2")]

    def state() -> str:
        return driver.consumer_describe().group_state

    readers[0].beat()
    readers[0].obey()
    assert state() == "Stable"
    driver.advance(1000)
    readers[1].beat()
    assert state() == "Reconciling"
    settle(readers)
    assert state() == "Stable"
    readers[0].leave()
    assert state() == "Assigning"
    readers[1].leave()
    assert state() == "Empty"


def test_targets_that_are_not_reached_yet() -> None:
    driver = ConsumerDriver(t=2)
    driver.enter_new("m1")
    driver.advance(1000)
    driver.enter_new("m2")
    second = driver.consumer_describe().members[1]
    assert second.assignment.topic_partitions == []
    assert len(second.target_assignment.topic_partitions) == 1


def test_a_topic_that_is_gone_is_not_shown() -> None:
    driver = ConsumerDriver(t=1, u=1)
    driver.enter_new("m1", "t", "u")
    del driver.topics.counts["u"]
    driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms))
    (member,) = driver.consumer_describe().members
    assert [topic.topic_name for topic in member.assignment.topic_partitions] == ["t"]


def test_groups_that_are_not_of_this_kind() -> None:
    driver = ConsumerDriver()
    driver.stable_group("classic")
    for group_id in ("classic", "nobody"):
        group = driver.consumer_describe(group_id)
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group_id in (group.error_message or "")


def test_groups_are_listed_with_their_kind() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    driver.stable_group("classic")
    assert driver.listed() == {GROUP: ("Stable", "consumer"), "classic": ("Stable", "classic")}
    assert driver.listed(types=["Consumer"]).keys() == {GROUP}
    assert driver.listed(states=["stable"], types=["classic"]).keys() == {"classic"}


def test_a_group_is_deleted_with_all_its_records() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    assert driver.delete(GROUP) == ErrorCode.NON_EMPTY_GROUP
    driver.beat("m1", -1)
    driver.commit(GROUP, {("t", 0): 1})
    assert driver.delete(GROUP) == ErrorCode.NONE
    assert driver.consumer_describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.listed() == {}
    last = {repr(record.key): record.value for record in driver.log}
    assert set(last.values()) == {None}, "the log cleaner can forget all of it"


def test_fetching_offsets_is_for_members_and_for_those_who_name_none() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    groups = driver.shard._consumer
    assert groups.check_fetch(GROUP, None, -1) == ErrorCode.NONE
    assert groups.check_fetch(GROUP, "m1", 1) == ErrorCode.NONE
    assert groups.check_fetch(GROUP, "m1", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert groups.check_fetch(GROUP, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.check_fetch("nobody", "m1", 1) == ErrorCode.NONE
