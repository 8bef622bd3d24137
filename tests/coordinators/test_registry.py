"""What the stored records of groups show: members, owners, offsets, of groups of either protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from consumer_readers import ConsumerDriver
from group_driver import assignment, id_of, subscription, through_bytes
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.groups.registry import GroupBook, GroupView, Member, Touch
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions
from tidelog.wire.stored.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicMetadata,
)
from tidelog.wire.stored.consumer_groups import TopicPartitions as StoredPartitions
from tidelog.wire.stored.transactions import TransactionLogKey

if TYPE_CHECKING:
    from tidelog.wire.declare import Message

T = frozenset({"t"})


def book_of(driver: ConsumerDriver) -> GroupBook:
    book = GroupBook()
    for record in driver.log:
        book.apply(*through_bytes(record))
    return book


def seen(driver: ConsumerDriver, group_id: str = "g", now_ms: int = 7) -> GroupView:
    view = book_of(driver).view(group_id, now_ms)
    assert view is not None
    return view


def test_a_classic_group_shows_the_division_of_its_generation() -> None:
    driver = ConsumerDriver(t=4)
    (one, two), _generation = driver.stable_group(size=2)
    driver.settle_with_assignment("g", one, {"t": [0, 2]}, two)
    driver.commit("g", {("t", 0): 5, ("t", 2): 6}, member_id=one, generation=driver_generation(driver))
    view = seen(driver)
    assert view.members == {one: Member(T, "", 7), two: Member(T, "", 7)}
    assert view.owners == {("t", 0): one, ("t", 2): one}
    assert view.offsets == {("t", 0): 5, ("t", 2): 6}


def driver_generation(driver: ConsumerDriver) -> int:
    value = next(record.value for record in reversed(driver.log) if isinstance(record.value, GroupMetadataValue))
    return value.generation


def test_a_classic_group_that_everybody_left_has_offsets_only() -> None:
    driver = ConsumerDriver(t=4)
    (member,), generation = driver.stable_group()
    driver.commit("g", {("t", 1): 9}, member_id=member, generation=generation)
    driver.leave("g", (member, None))
    assert seen(driver) == GroupView("g", {}, {}, {("t", 1): 9})


def test_members_of_other_protocols_are_shown_without_topics() -> None:
    driver = ConsumerDriver()
    (member,), _generation = driver.stable_group(protocol_type="connect", protocols={"default": b"opaque"})
    assert seen(driver).members == {member: Member(frozenset(), "", 7)}
    assert seen(driver).owners == {}


def test_a_group_of_the_newer_protocol_shows_who_has_what() -> None:
    driver = ConsumerDriver(t=2)
    driver.enter_new("a")
    view = seen(driver)
    assert view.members == {"a": Member(T, "", 7)}
    assert view.owners == {("t", 0): "a", ("t", 1): "a"}


def test_a_partition_belongs_to_the_member_that_has_not_let_go_of_it() -> None:
    driver = ConsumerDriver(t=2)
    first = driver.enter_new("a")
    driver.enter_new("b")
    driver.beat("a", first.member_epoch, topic_partitions=[TopicPartitions(topic_id=id_of("t"), partitions=[0, 1])])
    assert set(seen(driver).members) == {"a", "b"}
    assert set(seen(driver).owners.values()) == {"a"}


def test_a_pattern_is_shown_beside_names() -> None:
    driver = ConsumerDriver(t=1)
    driver.enter_new("a", subscribed_topic_regex="lo.*")
    assert seen(driver).members == {"a": Member(T, "lo.*", 7)}


def test_a_group_that_changes_its_protocol_is_shown_once() -> None:
    driver = ConsumerDriver(t=2)
    member_id, ticket = driver.enter("g")
    generation = driver.joined(ticket).generation_id
    driver.sync("g", member_id, generation, {member_id: assignment({"t": [0, 1]})})
    book = book_of(driver)
    assert book.view("g", 1) == GroupView(
        "g", {member_id: Member(T, "", 1)}, {("t", 0): member_id, ("t", 1): member_id}, {}
    )
    known = len(driver.log)
    assert driver.enter_new("new").error_code == ErrorCode.NONE
    for record in driver.log[known:]:
        book.apply(*through_bytes(record))
    view = book.view("g", 2)
    assert view is not None
    assert view.members == {member_id: Member(T, "", 1), "new": Member(T, "", 2)}
    assert set(view.owners.values()) == {member_id}


def test_a_topic_keeps_its_name_while_somebody_reads_it() -> None:
    book = GroupBook()
    facts = TopicMetadata(topic_id=id_of("t"), topic_name="t", num_partitions=1, partition_metadata=[])
    held = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=1,
        assigned_partitions=[],
        partitions_pending_revocation=[StoredPartitions(topic_id=id_of("t"), partitions=[0])],
    )
    topics = ConsumerGroupPartitionMetadataKey(group_id="g")
    position = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    records: list[tuple[Message, Message | None]] = [
        (topics, ConsumerGroupPartitionMetadataValue(topics=[facts])),
        (position, held),
        (topics, ConsumerGroupPartitionMetadataValue(topics=[])),
    ]
    for key, value in records:
        book.apply(key, value)
    view = book.view("g", 0)
    assert view is not None
    assert view.owners == {("t", 0): "a"}
    book.apply(position, None)
    book.apply(topics, ConsumerGroupPartitionMetadataValue(topics=[]))
    view = book.view("g", 0)
    assert view is not None
    assert view.owners == {}


def test_a_deleted_group_is_gone() -> None:
    driver = ConsumerDriver()
    (member,), _generation = driver.stable_group()
    driver.leave("g", (member, None))
    assert driver.delete("g") == ErrorCode.NONE
    driver.enter_new("a", group_id="h")
    driver.beat("a", -1, group_id="h")
    assert driver.delete("h") == ErrorCode.NONE
    book = book_of(driver)
    assert list(book) == []
    assert book.view("g", 0) is None
    assert book.view("h", 0) is None


@pytest.mark.parametrize("share", [b"", b"\0", b"\xff\xff", b"\0\1garbage", b"\0\1\x7f\xff\xff\xff"])
def test_an_assignment_that_cannot_be_read_owns_nothing(share: bytes) -> None:
    book = GroupBook()
    book.apply(*classic("m", subscription("t"), share))
    assert book.view("g", 0) == GroupView("g", {"m": Member(T, "", 0)}, {}, {})


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_whatever_a_member_says_there_is_a_view(subscribed: bytes, share: bytes) -> None:
    book = GroupBook()
    book.apply(*classic("m", b"\0\1" + subscribed, b"\0\1" + share))
    view = book.view("g", 0)
    assert view is not None
    assert set(view.members) == {"m"}


def classic(member_id: str, subscribed: bytes, share: bytes) -> tuple[GroupMetadataKey, GroupMetadataValue]:
    member = MemberMetadata(
        member_id=member_id,
        client_id="c",
        client_host="/h",
        session_timeout=1,
        subscription=subscribed,
        assignment=share,
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader=None, members=[member])
    return GroupMetadataKey(group="g"), value


def commit(group_id: str, partition: int, offset: int | None) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    value = None if offset is None else OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)
    return OffsetCommitKey(group=group_id, topic="t", partition=partition), value


def test_each_record_tells_what_it_touches() -> None:
    book = GroupBook()
    assert book.apply(*commit("g", 0, 1)) == Touch("g", None), "the group is new"
    assert book.apply(*commit("g", 0, 2)) == Touch("g", ("t", 0))
    assert book.apply(*commit("g", 1, 3)) == Touch("g", ("t", 1))
    assert book.apply(*commit("g", 1, None)) == Touch("g", None)
    assert book.apply(*classic("m", b"", b"")) == Touch("g", None)
    assert book.apply(ConsumerGroupMetadataKey(group_id="h"), ConsumerGroupMetadataValue(epoch=1)) == Touch("h", None)
    assert book.apply(TransactionLogKey(transactional_id="x"), None) is None
    assert book.offset("g", ("t", 0)) == 2
    assert book.offset("g", ("t", 1)) is None
    assert book.offset("nobody", ("t", 0)) is None


@given(st.lists(st.tuples(st.sampled_from("gh"), st.integers(0, 2), st.none() | st.integers(0, 9)), max_size=30))
def test_offsets_are_the_last_that_were_committed(commits: list[tuple[str, int, int | None]]) -> None:
    book = GroupBook()
    expected: dict[str, dict[tuple[str, int], int]] = {"g": {}, "h": {}}
    for group_id, partition, offset in commits:
        book.apply(*commit(group_id, partition, offset))
        if offset is None:
            expected[group_id].pop(("t", partition), None)
        else:
            expected[group_id]["t", partition] = offset
    for group_id, offsets in expected.items():
        view = book.view(group_id, 0)
        assert (view.offsets if view else {}) == offsets
        assert (group_id in book) == bool(offsets)
