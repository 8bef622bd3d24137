"""Offsets that are committed inside transactions: who may, when they count, and what they keep from being forgotten."""

from __future__ import annotations

import pytest
from consumer_readers import ConsumerDriver, Reader, settle
from group_driver import GroupDriver

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

T0 = ("t", 0)
MINE, HERS = 77, 88


def stable(driver: GroupDriver, group_id: str = "g", partition: int = 0) -> tuple[int, int]:
    """The offset and the error, for whoever wants only what no transaction can change any more."""
    (topic,) = driver.fetch(group_id, {"t": [partition]}, require_stable=True).topics
    return topic.partitions[0].committed_offset, topic.partitions[0].error_code


UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


class TestOutcome:
    @pytest.mark.parametrize(("committed", "offset"), [(True, 2), (False, 1)])
    @pytest.mark.parametrize("reload", [True, False])
    def test_it_counts_once_the_transaction_is_committed(self, committed: bool, offset: int, reload: bool) -> None:
        driver = GroupDriver()
        driver.commit("g", {T0: 1})
        assert driver.commit_in_transaction("g", {T0: 2}) == [0]
        if reload:
            driver.reload()
        assert driver.offsets("g") == {T0: 1}
        assert stable(driver) == UNSTABLE
        assert stable(driver, partition=1) == (-1, 0), "nobody changes that one"
        driver.end_transaction(MINE, committed=committed)
        if reload:
            driver.reload()
        assert driver.offsets("g") == {T0: offset}
        assert stable(driver) == (offset, 0)

    def test_a_later_one_of_the_same_transaction_stands_for_the_earlier(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 1, ("t", 1): 1})
        driver.commit_in_transaction("g", {T0: 2})
        driver.end_transaction(MINE, committed=True)
        assert driver.offsets("g") == {T0: 2, ("t", 1): 1}

    def test_one_transaction_may_be_of_several_groups(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 1})
        driver.commit_in_transaction("h", {T0: 2})
        driver.end_transaction(MINE, committed=True)
        assert (driver.offsets("g"), driver.offsets("h")) == ({T0: 1}, {T0: 2})

    def test_a_plain_commit_that_came_later_stays(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 9})
        driver.commit("g", {T0: 3})
        assert stable(driver) == (3, 0), "whatever becomes of the transaction"
        driver.end_transaction(MINE, committed=True)
        assert driver.offsets("g") == {T0: 3}

    @pytest.mark.parametrize("first", [MINE, HERS])
    def test_of_two_transactions_the_later_commit_stays(self, first: int) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 1}, MINE)
        driver.commit_in_transaction("g", {T0: 2}, HERS)
        driver.end_transaction(first, committed=True)
        assert stable(driver) == (UNSTABLE if first == MINE else (2, 0))
        driver.end_transaction(MINE + HERS - first, committed=True)
        assert driver.offsets("g") == {T0: 2}

    def test_the_earlier_one_counts_when_the_later_is_aborted(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 1}, MINE)
        driver.commit_in_transaction("g", {T0: 2}, HERS)
        driver.end_transaction(HERS, committed=False)
        assert stable(driver) == UNSTABLE
        driver.end_transaction(MINE, committed=True)
        assert stable(driver) == (1, 0)

    def test_a_marker_may_come_again_or_for_nothing(self) -> None:
        driver = GroupDriver()
        driver.end_transaction(MINE, committed=True)
        driver.commit_in_transaction("g", {T0: 1})
        for _ in range(2):
            driver.end_transaction(MINE, committed=True)
        driver.commit("g", {T0: 2})
        driver.end_transaction(MINE, committed=True)
        assert driver.offsets("g") == {T0: 2}

    def test_what_is_stored_is_what_a_plain_commit_stores(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 7}, metadata="here")
        ((key, value),) = driver.history[-1].records
        assert key == OffsetCommitKey(group="g", topic="t", partition=0)
        assert isinstance(value, OffsetCommitValue)
        assert (value.offset, value.metadata, value.commit_timestamp) == (7, "here", driver.now_ms)
        transaction = driver.history[-1].transaction
        assert transaction is not None
        assert transaction[:2] == (MINE, 0)


class TestWhoMay:
    """KIP-447: a producer that says for whom it commits is refused if that member has lost its place."""

    @pytest.mark.parametrize(
        ("member", "generation", "code"),
        [
            ("it", 0, ErrorCode.NONE),
            ("it", -1, ErrorCode.ILLEGAL_GENERATION),
            ("it", +1, ErrorCode.ILLEGAL_GENERATION),
            ("somebody", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_in_a_classic_group(self, member: str, generation: int, code: int) -> None:
        driver = GroupDriver()
        (member_id,), current = driver.stable_group("g")
        answer = driver.commit_in_transaction(
            "g", {T0: 1}, member_id=member_id if member == "it" else member, generation=current + generation
        )
        assert answer == [code]
        assert len(driver.history[-1].records) == 1
        assert (driver.history[-1].transaction is not None) == (code == ErrorCode.NONE)

    def test_whoever_names_nobody_is_believed(self) -> None:
        driver = GroupDriver()
        driver.stable_group("g")
        assert driver.commit_in_transaction("g", {T0: 1}, version=2) == [0]

    def test_a_member_without_a_generation_is_not(self) -> None:
        driver = GroupDriver()
        (member_id,), _generation = driver.stable_group("g")
        assert driver.commit_in_transaction("g", {T0: 1}, member_id=member_id) == [ErrorCode.ILLEGAL_GENERATION]

    def test_a_group_that_is_being_divided_takes_it(self) -> None:
        driver = GroupDriver()
        member_id, ticket = driver.enter("g")
        generation = driver.joined(ticket).generation_id
        assert driver.state("g") == "CompletingRebalance"
        assert driver.commit_in_transaction("g", {T0: 1}, member_id=member_id, generation=generation) == [0]

    def test_a_static_member_that_was_replaced_is_fenced(self) -> None:
        driver = GroupDriver()
        first = driver.joined(driver.join("g", instance_id="i")).member_id
        driver.joined(driver.join("g", instance_id="i"))
        answer = driver.commit_in_transaction("g", {T0: 1}, member_id=first, instance_id="i", generation=1)
        assert answer == [ErrorCode.FENCED_INSTANCE_ID]

    def test_a_group_that_is_not_there(self) -> None:
        driver = GroupDriver()
        assert driver.commit_in_transaction("g", {T0: 1}, generation=3, member_id="m") == [ErrorCode.ILLEGAL_GENERATION]
        assert driver.commit_in_transaction("g", {T0: 1}) == [0]

    def test_in_a_group_of_the_newer_protocol(self) -> None:
        driver = ConsumerDriver()
        reader = Reader(driver, "m1")
        settle([reader])

        def commit(member_id: str, epoch: int) -> list[int]:
            return driver.commit_in_transaction("g", {T0: 1}, member_id=member_id, generation=epoch)

        assert commit("m1", reader.epoch) == [0]
        assert commit("", -1) == [0]
        assert commit("m1", reader.epoch + 1) == [ErrorCode.ILLEGAL_GENERATION], "producers know no member epochs"
        assert commit("m2", reader.epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]

    def test_each_partition_has_its_answer(self) -> None:
        driver = GroupDriver(GroupConfig(offset_metadata_max_bytes=3))
        assert driver.commit_in_transaction("g", {T0: 1, ("t", 4): 1, ("u", 0): 1}) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert driver.commit_in_transaction("g", {("t", 1): 1}, metadata="much") == [
            ErrorCode.OFFSET_METADATA_TOO_LARGE
        ]
        driver.end_transaction(MINE, committed=True)
        assert driver.offsets("g") == {T0: 1}

    def test_what_fits_into_no_batch_is_refused(self) -> None:
        driver = GroupDriver(GroupConfig(record_bytes_max=99))
        assert driver.commit_in_transaction("g", {T0: 1, ("t", 1): 1}) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 2
        assert driver.history == []


class TestForgetting:
    CONFIG = GroupConfig(
        initial_rebalance_delay_ms=0, offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=HOUR_MS
    )

    def test_what_a_transaction_may_change_does_not_expire(self) -> None:
        driver = GroupDriver(self.CONFIG)
        driver.commit("g", {T0: 1, ("t", 1): 1})
        driver.commit_in_transaction("g", {T0: 2})
        driver.advance(2 * DAY_MS)
        assert driver.offsets("g") == {T0: 1}
        driver.end_transaction(MINE, committed=False)
        driver.advance(HOUR_MS)
        assert driver.listed() == {}

    def test_nor_does_its_group(self) -> None:
        driver = GroupDriver(self.CONFIG)
        (member_id,), _generation = driver.stable_group("g")
        driver.commit_in_transaction("g", {T0: 2})
        driver.leave("g", (member_id, None))
        driver.advance(2 * DAY_MS)
        assert driver.listed() == {"g": ("Empty", "classic")}
        driver.end_transaction(MINE, committed=False)
        driver.advance(HOUR_MS)
        assert driver.listed() == {}

    def test_a_group_that_is_only_in_a_transaction_is_shown_as_one_that_nobody_joined(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 2})
        assert driver.listed() == {"g": ("Empty", "classic")}
        assert driver.state("g") == "Empty"
        assert driver.offsets("g") == {}
        driver.end_transaction(MINE, committed=False)
        assert driver.listed() == {}

    def test_nobody_deletes_the_group(self) -> None:
        driver = GroupDriver()
        driver.commit_in_transaction("g", {T0: 2})
        assert driver.delete("g") == ErrorCode.NON_EMPTY_GROUP
        driver.end_transaction(MINE, committed=True)
        assert driver.delete("g") == ErrorCode.NONE
        assert driver.listed() == {}

    @pytest.mark.parametrize("reload", [True, False])
    def test_offsets_that_are_deleted_do_not_come_back_with_the_marker(self, reload: bool) -> None:
        driver = GroupDriver()
        driver.commit("g", {T0: 1})
        driver.commit_in_transaction("g", {T0: 2, ("t", 1): 2})
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name="t", partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in range(3)]
                )
            ],
        )
        assert driver.reply(driver.ask(request, 0), OffsetDeleteResponse).error_code == ErrorCode.NONE
        assert stable(driver) == (-1, 0)
        if reload:
            driver.reload()
        driver.end_transaction(MINE, committed=True)
        assert driver.offsets("g") == {}
        assert driver.listed() == {}

    @pytest.mark.parametrize("reload", [True, False])
    def test_those_of_a_deleted_topic_do_not_greet_a_namesake(self, reload: bool) -> None:
        driver = GroupDriver(t=4, u=4)
        driver.commit("g", {T0: 1})
        driver.commit_in_transaction("g", {T0: 2, ("t", 1): 2, ("u", 0): 2})
        driver.commit_in_transaction("h", {T0: 2}, HERS)
        driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms, deleted=["t"]))
        if reload:
            driver.reload()
        for producer_id in (MINE, HERS):
            driver.end_transaction(producer_id, committed=True)
        assert driver.offsets("g") == {("u", 0): 2}
        assert driver.offsets("h") == {}

    def test_a_commit_into_a_namesake_is_not_taken_for_an_old_one(self) -> None:
        driver = GroupDriver(GroupConfig(record_bytes_max=150))
        driver.commit_in_transaction("g", {T0: 1})
        driver.commit_in_transaction("g", {("t", 1): 1})
        driver.commit_in_transaction("g", {("t", 2): 1})
        driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms, deleted=["t"]))
        driver.commit_in_transaction("g", {("t", 2): 5}, HERS)  # before it was forgotten: there is no room at once
        driver.end_transaction(MINE, committed=False)
        driver.advance(0)
        driver.end_transaction(HERS, committed=True)
        assert driver.offsets("g") == {("t", 2): 5}
