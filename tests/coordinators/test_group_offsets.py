"""Committed offsets: who may commit, what is kept and for how long, and how it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from group_driver import SESSION_MS, GroupDriver, id_of, subscription

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponseGroup
from tidelog.wire.stored.classic_groups import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from tidelog.wire.messages.offset_commit import OffsetCommitResponse

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def codes(response: OffsetCommitResponse) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def delete_offsets(driver: GroupDriver, group_id: str, *partitions: tuple[str, int]) -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number)])
            for topic, number in partitions
        ],
    )
    return driver.reply(driver.ask(request, 0), OffsetDeleteResponse)


class TestCommit:
    def test_whoever_manages_his_partitions_himself_just_commits(self) -> None:
        driver = GroupDriver()
        assert codes(driver.commit("g", {("t", 0): 7, ("t", 3): 9})) == [0, 0]
        assert driver.offsets("g") == {("t", 0): 7, ("t", 3): 9}
        (record, _) = driver.log
        assert (record.key, record.key_version) == (OffsetCommitKey(group="g", topic="t", partition=0), 1)
        assert record.value_version == 3
        assert isinstance(record.value, OffsetCommitValue)
        assert record.value.commit_timestamp == driver.now_ms

    @pytest.mark.parametrize("group_id", ["", "g"])
    def test_even_under_no_name(self, group_id: str) -> None:
        driver = GroupDriver()
        driver.commit(group_id, {("t", 0): 7})
        assert driver.offsets(group_id) == {("t", 0): 7}

    def test_the_last_one_counts(self) -> None:
        driver = GroupDriver()
        for offset in (5, 9, 3):
            driver.commit("g", {("t", 0): offset})
        assert driver.offsets("g") == {("t", 0): 3}

    @pytest.mark.parametrize(
        ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
    )
    def test_a_member_of_a_group_that_is_not_there(self, version: int, code: ErrorCode) -> None:
        driver = GroupDriver()
        response = driver.commit("g", {("t", 0): 1}, member_id="m", generation=1, version=version)
        assert codes(response) == [code]
        assert driver.log == []

    @pytest.mark.parametrize(
        ("who", "code"),
        [
            ({"member_id": "client-id1", "generation": 1}, ErrorCode.NONE),
            ({"member_id": "client-id1", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "client-id1", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "client-id1", "generation": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "stranger", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": -1, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "client-id1", "generation": 1, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_while_the_group_has_members_only_they_may_commit(self, who: dict[str, object], code: ErrorCode) -> None:
        driver = GroupDriver()
        assert driver.stable_group("g") == (["client-id1"], 1)
        response = driver.commit("g", {("t", 0): 1, ("t", 1): 1}, **who)  # type: ignore[arg-type]
        assert codes(response) == [code, code]

    def test_during_a_rebalance(self) -> None:
        """What was read before the rebalance may be committed until the next generation is known."""
        driver = GroupDriver()
        (leader, follower), generation = driver.stable_group("g", 2)
        driver.join("g", leader)
        assert driver.state("g") == "PreparingRebalance"
        assert codes(driver.commit("g", {("t", 0): 1}, member_id=follower, generation=generation)) == [0]
        driver.join("g", follower)
        assert driver.state("g") == "CompletingRebalance"
        old = driver.commit("g", {("t", 0): 2}, member_id=follower, generation=generation)
        new = driver.commit("g", {("t", 0): 3}, member_id=follower, generation=generation + 1)
        assert (codes(old), codes(new)) == ([ErrorCode.ILLEGAL_GENERATION], [ErrorCode.REBALANCE_IN_PROGRESS])
        assert driver.offsets("g") == {("t", 0): 1}

    def test_an_empty_group_takes_commits_of_anybody(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        driver.leave("g", (member_id, None))
        assert codes(driver.commit("g", {("t", 0): 1})) == [0]
        late = driver.commit("g", {("t", 0): 2}, member_id=member_id, generation=generation)
        assert codes(late) == [ErrorCode.UNKNOWN_MEMBER_ID]

    def test_each_partition_is_refused_for_itself(self) -> None:
        driver = GroupDriver(GroupConfig(offset_metadata_max_bytes=3))
        response = driver.commit("g", {("t", 0): 1, ("nowhere", 0): 1, ("t", -1): 1, ("t", 4): 1})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [topic.name for topic in response.topics] == ["t", "nowhere"]
        assert codes(response) == [0, unknown, unknown, unknown]
        assert codes(driver.commit("g", {("t", 0): 2}, metadata="1234")) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert codes(driver.commit("g", {("t", 1): 2}, metadata="123")) == [0]
        assert codes(driver.commit("g", {("t", 2): 2}, metadata=None)) == [0]
        assert driver.offsets("g") == {("t", 0): 1, ("t", 1): 2, ("t", 2): 2}
        notes = [partition.metadata for partition in driver.fetch("g").topics[0].partitions]
        assert notes == ["", "123", ""]

    def test_what_would_not_fit_into_one_batch_is_refused(self) -> None:
        driver = GroupDriver(GroupConfig(record_bytes_max=10_000), t=1000)
        many = {("t", partition): 1 for partition in range(1000)}
        assert set(codes(driver.commit("g", many))) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert driver.log == []
        few = {("t", partition): 1 for partition in range(100)}
        assert set(codes(driver.commit("g", few))) == {0}

    def test_by_topic_id(self) -> None:
        driver = GroupDriver()
        response = driver.commit("g", {("t", 0): 5, ("nowhere", 0): 5}, version=10)
        assert codes(response) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
        assert [topic.topic_id for topic in response.topics] == [id_of("t"), id_of("nowhere")]
        assert driver.offsets("g") == {("t", 0): 5}


class TestFetch:
    def test_what_was_never_committed_has_no_offset(self) -> None:
        driver = GroupDriver()
        driver.commit("g", {("t", 1): 5}, metadata="note")
        group = driver.fetch("g", {"t": [0, 1], "nowhere": [0]})
        found = [
            (partition.committed_offset, partition.committed_leader_epoch, partition.metadata, partition.error_code)
            for topic in group.topics
            for partition in topic.partitions
        ]
        assert found == [(-1, -1, "", 0), (5, -1, "note", 0), (-1, -1, "", 0)]
        assert group.error_code == ErrorCode.NONE

    def test_neither_has_a_group_that_never_was(self) -> None:
        group = GroupDriver().fetch("g", {"t": [0]})
        assert (group.error_code, group.topics[0].partitions[0].committed_offset) == (0, -1)
        assert GroupDriver().fetch("g").topics == []

    def test_nothing_asked_nothing_told(self) -> None:
        driver = GroupDriver()
        driver.commit("g", {("t", 0): 5})
        assert driver.fetch("g", {}).topics == []

    def test_by_topic_id(self) -> None:
        driver = GroupDriver(t=4, u=4)
        driver.commit("g", {("t", 0): 5, ("u", 0): 6})
        del driver.topics.counts["u"]
        wanted = driver.fetch("g", {"t": [0], "u": [0]}, version=10)
        assert [topic.topic_id for topic in wanted.topics] == [id_of("t"), id_of("u")]
        assert wanted.topics[0].partitions[0].committed_offset == 5
        assert wanted.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        everything = driver.fetch("g", version=10)
        assert [topic.topic_id for topic in everything.topics] == [id_of("t")], "the other has no id any more"
        assert len(driver.fetch("g", version=9).topics) == 2

    @pytest.mark.parametrize(
        ("topics", "found"), [(None, 2), ([], 0), ([OffsetFetchRequestTopic(name="t", partition_indexes=[0])], 1)]
    )
    def test_the_form_of_older_versions(self, topics: list[OffsetFetchRequestTopic] | None, found: int) -> None:
        driver = GroupDriver()
        driver.commit("g", {("t", 0): 5, ("t", 1): 6})
        group = driver.reply(driver.ask(OffsetFetchRequest(group_id="g", topics=topics), 7), OffsetFetchResponseGroup)
        assert group.group_id == "g"
        assert sum(len(topic.partitions) for topic in group.topics) == found


class TestDelete:
    def test_it_leaves_a_tombstone(self) -> None:
        driver = GroupDriver()
        driver.commit("g", {("t", 0): 1, ("t", 1): 2})
        response = delete_offsets(driver, "g", ("t", 0), ("t", 3))
        assert response.error_code == ErrorCode.NONE
        assert [topic.partitions[0].error_code for topic in response.topics] == [0, 0]
        assert driver.log[-1] == (OffsetCommitKey(group="g", topic="t", partition=0), 1, None, 0)
        assert len(driver.log) == 3, "what was not there needs no tombstone"
        assert driver.offsets("g") == {("t", 1): 2}

    def test_a_topic_that_is_read_is_left_alone(self) -> None:
        driver = GroupDriver(t=4, u=4)
        (member_id,), generation = driver.stable_group("g")
        driver.commit("g", {("t", 0): 1, ("u", 0): 2}, member_id=member_id, generation=generation)
        response = delete_offsets(driver, "g", ("t", 0), ("u", 0), ("nowhere", 0))
        assert [topic.partitions[0].error_code for topic in response.topics] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert driver.offsets("g") == {("t", 0): 1}

    @pytest.mark.parametrize("metadata", [b"", b"\0\0\0", b"\xff\xff\0\0\0\0"])
    def test_who_cannot_be_understood_may_read_anything(self, metadata: bytes) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g", protocols={"range": metadata})
        driver.commit("g", {("t", 0): 1}, member_id=member_id, generation=generation)
        response = delete_offsets(driver, "g", ("t", 0))
        assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    def test_members_that_are_no_consumers(self) -> None:
        driver = GroupDriver()
        driver.stable_group("g", protocol_type="connect", protocols={"x": b""})
        assert delete_offsets(driver, "g", ("t", 0)).error_code == ErrorCode.NON_EMPTY_GROUP

    def test_of_a_group_that_is_not_there(self) -> None:
        assert delete_offsets(GroupDriver(), "g", ("t", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_the_offsets_of_a_deleted_topic_do_not_greet_a_namesake(self) -> None:
        driver = GroupDriver(t=4, u=4)
        driver.commit("g", {("t", 0): 1, ("t", 1): 1, ("u", 0): 1})
        driver.commit("h", {("t", 0): 1})
        driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms, deleted=["t", "never committed"]))
        assert driver.offsets("g") == {("u", 0): 1}
        assert driver.offsets("h") == {}
        assert driver.listed() == {"g": ("Empty", "classic")}

    def test_of_many_groups_in_portions(self) -> None:
        driver = GroupDriver(GroupConfig(record_bytes_max=2000))
        for number in range(50):
            driver.commit(f"g{number}", {("t", partition): 1 for partition in range(20)})
        driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms, deleted=["t"]))
        driver.commit("g49", {("t", 0): 99})  # into a new topic of the same name
        driver.advance(0)
        assert driver.listed() == {"g49": ("Empty", "classic")}
        assert driver.offsets("g49") == {("t", 0): 99}
        assert max(driver.batches) < 2000


class TestRetention:
    CONFIG = GroupConfig(
        initial_rebalance_delay_ms=0, offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=HOUR_MS
    )

    @staticmethod
    def live(driver: GroupDriver, member_id: str, generation: int, hours: int) -> None:
        for _ in range(hours * 60):
            driver.advance(60_000)
            assert driver.heartbeat("g", member_id, generation) == ErrorCode.NONE

    def test_without_members_it_counts_from_the_commit(self) -> None:
        driver = GroupDriver(self.CONFIG)
        driver.commit("g", {("t", 0): 1})
        driver.advance(12 * HOUR_MS)
        driver.commit("g", {("t", 1): 1})
        driver.advance(11 * HOUR_MS)
        assert driver.offsets("g") == {("t", 0): 1, ("t", 1): 1}
        driver.advance(HOUR_MS)
        assert driver.offsets("g") == {("t", 1): 1}
        driver.advance(12 * HOUR_MS)
        assert driver.listed() == {}
        assert [record.value for record in driver.log[-2:]] == [None, None]

    def test_with_members_it_counts_from_when_they_left(self) -> None:
        driver = GroupDriver(self.CONFIG)
        (member_id,), generation = driver.stable_group("g", session_ms=120_000)
        driver.commit("g", {("t", 0): 1}, member_id=member_id, generation=generation)
        self.live(driver, member_id, generation, hours=30)
        driver.leave("g", (member_id, None))
        driver.advance(23 * HOUR_MS)
        assert driver.offsets("g") == {("t", 0): 1}
        driver.advance(HOUR_MS)
        assert driver.listed() == {}
        assert driver.log[-1] == (GroupMetadataKey(group="g"), 2, None, 0)
        driver.reload()
        assert driver.listed() == {}

    def test_a_commit_into_an_empty_group_has_its_own_time(self) -> None:
        driver = GroupDriver(self.CONFIG)
        (member_id,), generation = driver.stable_group("g")
        driver.commit("g", {("t", 0): 1}, member_id=member_id, generation=generation)
        driver.leave("g", (member_id, None))
        driver.advance(23 * HOUR_MS)
        driver.commit("g", {("t", 1): 1})
        driver.advance(12 * HOUR_MS)
        assert driver.offsets("g") == {("t", 1): 1}

    def test_a_topic_that_members_do_not_read_any_more(self) -> None:
        driver = GroupDriver(self.CONFIG, t=4, u=4)
        (member_id,), generation = driver.stable_group("g", session_ms=120_000, protocols={"range": subscription("u")})
        driver.commit("g", {("t", 0): 1, ("u", 0): 2}, member_id=member_id, generation=generation)
        self.live(driver, member_id, generation, hours=23)
        assert driver.offsets("g") == {("t", 0): 1, ("u", 0): 2}
        self.live(driver, member_id, generation, hours=1)
        assert driver.offsets("g") == {("u", 0): 2}

    @pytest.mark.parametrize(
        "options",
        [
            {"protocol_type": "connect", "protocols": {"x": b""}},
            {"protocols": {"range": b"what is this"}},
        ],
    )
    def test_nothing_of_members_that_are_not_understood(self, options: dict[str, Any]) -> None:
        driver = GroupDriver(self.CONFIG)
        (member_id,), generation = driver.stable_group("g", session_ms=120_000, **options)
        driver.commit("g", {("t", 0): 1}, member_id=member_id, generation=generation)
        self.live(driver, member_id, generation, hours=26)
        assert driver.offsets("g") == {("t", 0): 1}

    def test_an_old_client_may_set_its_own_time(self) -> None:
        driver = GroupDriver(self.CONFIG)
        driver.commit("g", {("t", 0): 1}, version=4, retention_ms=2 * HOUR_MS)
        assert driver.log[-1].value_version == 1
        driver.reload()
        driver.advance(HOUR_MS)
        assert driver.offsets("g") == {("t", 0): 1}
        driver.advance(HOUR_MS)
        assert driver.offsets("g") == {}

    def test_an_empty_group_without_offsets_is_forgotten_soon(self) -> None:
        driver = GroupDriver(self.CONFIG)
        (member_id,), _generation = driver.stable_group("g")
        driver.leave("g", (member_id, None))
        driver.advance(HOUR_MS)
        assert driver.listed() == {}

    def test_not_while_somebody_is_about_to_join(self) -> None:
        driver = GroupDriver(self.CONFIG)
        (member_id,), _generation = driver.stable_group("g")
        driver.leave("g", (member_id, None))
        driver.advance(HOUR_MS - SESSION_MS // 2)
        pending = driver.joined(driver.join("g")).member_id
        driver.advance(SESSION_MS // 2)
        assert driver.joined(driver.join("g", pending)).error_code == ErrorCode.NONE

    def test_much_is_forgotten_in_portions(self) -> None:
        driver = GroupDriver(replace(self.CONFIG, record_bytes_max=2000))
        for number in range(20):
            driver.commit(f"g{number}", {("t", partition): 1 for partition in range(20)})
        driver.advance(DAY_MS)
        assert driver.listed() == {}
        assert max(driver.batches) < 2000
        decision = driver.shard.on_timer(("retention",), driver.now_ms)
        assert decision.records == []
        assert decision.timers == [(("retention",), driver.now_ms + HOUR_MS)]
