"""The shard as a whole: what administrators see, what a new coordinator knows, where the two kinds of group meet."""

from __future__ import annotations

import pytest
from group_driver import SESSION_MS, GroupDriver, subscription, through_bytes

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tidelog.wire.stored.classic_groups import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey


def newer_heartbeat(
    driver: GroupDriver, member_id: str, epoch: int, *, group_id: str = "g", topics: list[str] | None = None
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=topics if topics is not None else (["t"] if epoch == 0 else None),
        topic_partitions=[] if epoch == 0 else None,
    )
    return driver.reply(driver.ask(request, 1), ConsumerGroupHeartbeatResponse)


def describe_newer(driver: GroupDriver, group_id: str = "g") -> DescribedConsumerGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    return driver.reply(driver.ask(request, 1), DescribedConsumerGroup)


class TestDescribe:
    def test_a_settled_group_is_shown_with_what_its_members_have(self) -> None:
        driver = GroupDriver()
        (member_id,), _generation = driver.stable_group("g")
        group = driver.describe("g")
        assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/1.2.3.4")
        assert (member.member_metadata, member.member_assignment) == (subscription("t"), member_id.encode())

    def test_one_that_is_not_settled_without(self) -> None:
        driver = GroupDriver()
        (member_id,), _generation = driver.stable_group("g")
        driver.join("g", member_id)
        group = driver.describe("g")
        assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
        assert [(member.member_metadata, member.member_assignment) for member in group.members] == [(b"", b"")]

    @pytest.mark.parametrize("version", range(7))
    def test_one_that_is_not_there(self, version: int) -> None:
        group = GroupDriver().describe("g", version)
        assert group.group_state == "Dead"
        assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else ErrorCode.NONE)
        assert group.error_message == ("Group g not found." if version == 6 else None)

    def test_one_that_only_has_offsets(self) -> None:
        driver = GroupDriver()
        driver.commit("g", {("t", 0): 1})
        group = driver.describe("g")
        assert (group.error_code, group.group_state, group.protocol_type) == (ErrorCode.NONE, "Empty", "")

    def test_one_of_the_newer_protocol(self) -> None:
        driver = GroupDriver()
        newer_heartbeat(driver, "m", 0)
        assert driver.describe("g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert driver.describe("g", 5).group_state == "Dead"
        assert describe_newer(driver).error_code == ErrorCode.NONE
        assert describe_newer(driver, "other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


class TestList:
    @pytest.mark.parametrize(
        ("states", "types", "found"),
        [
            ([], [], {"settled", "left", "simple", "newer"}),
            (["Stable"], [], {"settled", "newer"}),
            (["stable", "EMPTY"], [], {"settled", "left", "simple", "newer"}),
            (["Empty"], ["classic"], {"left", "simple"}),
            ([], ["Classic"], {"settled", "left", "simple"}),
            ([], ["consumer"], {"newer"}),
            (["Dead"], [], set()),
            ([], ["share"], set()),
        ],
    )
    def test_by_state_and_type(self, states: list[str], types: list[str], found: set[str]) -> None:
        driver = GroupDriver()
        driver.stable_group("settled")
        (member_id,), _generation = driver.stable_group("left")
        driver.leave("left", (member_id, None))
        driver.commit("simple", {("t", 0): 1})
        driver.commit("settled", {("t", 0): 1}, member_id="client-id1", generation=1)
        newer_heartbeat(driver, "m", 0, group_id="newer")
        driver.commit("newer", {("t", 0): 1}, member_id="m", generation=1)
        assert set(driver.listed(states, types)) == found


class TestDelete:
    def test_it_leaves_nothing(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        driver.commit("g", {("t", 0): 1, ("t", 1): 1}, member_id=member_id, generation=generation)
        assert driver.delete("g") == ErrorCode.NON_EMPTY_GROUP
        driver.leave("g", (member_id, None))
        before = len(driver.log)
        assert driver.delete("g") == ErrorCode.NONE
        buried = driver.log[before:]
        assert [record.value for record in buried] == [None] * 3
        assert [type(record.key) for record in buried] == [OffsetCommitKey, OffsetCommitKey, GroupMetadataKey]
        assert driver.listed() == {}
        assert driver.delete("g") == ErrorCode.GROUP_ID_NOT_FOUND
        driver.reload()
        assert driver.listed() == {}

    def test_of_offsets_that_belong_to_nobody(self) -> None:
        driver = GroupDriver()
        driver.commit("g", {("t", 0): 1})
        assert driver.delete("g") == ErrorCode.NONE
        assert driver.listed() == {}

    def test_of_a_group_of_the_newer_protocol(self) -> None:
        driver = GroupDriver()
        newer_heartbeat(driver, "m", 0)
        driver.commit("g", {("t", 0): 1}, member_id="m", generation=1)
        assert driver.delete("g") == ErrorCode.NON_EMPTY_GROUP
        newer_heartbeat(driver, "m", -1)
        assert driver.delete("g") == ErrorCode.NONE
        driver.reload()
        assert driver.listed() == {}

    def test_not_while_somebody_is_about_to_join(self) -> None:
        driver = GroupDriver()
        driver.join("g")
        assert driver.delete("g") == ErrorCode.NON_EMPTY_GROUP

    def test_what_does_not_fit_into_one_batch_is_deleted_in_several(self) -> None:
        driver = GroupDriver(GroupConfig(record_bytes_max=2000), t=100)
        for start in range(0, 100, 20):
            driver.commit("g", {("t", partition): 1 for partition in range(start, start + 20)})
        ticket = driver.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert driver.waits(ticket)
        driver.advance(0)
        assert not driver.waits(ticket)
        assert driver.listed() == {}
        assert max(driver.batches) < 2000


class TestLoading:
    def test_a_settled_group_goes_on_as_if_nothing_had_happened(self) -> None:
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2)
        driver.commit("g", {("t", 0): 7}, member_id=first, generation=generation)
        before = driver.describe("g")
        driver.reload()
        assert driver.describe("g") == before
        assert driver.heartbeat("g", first, generation) == ErrorCode.NONE
        assert driver.synced(driver.sync("g", second, generation)).assignment == second.encode()
        assert driver.offsets("g") == {("t", 0): 7}
        assert driver.waits(driver.join("g", first)), "the leader still leads"

    def test_members_get_a_whole_session_to_find_the_new_coordinator(self) -> None:
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2)
        driver.advance(SESSION_MS - 1)
        driver.reload()
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat("g", first, generation) == ErrorCode.NONE
        driver.advance(1)
        assert driver.heartbeat("g", second, generation) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_rebalance_that_was_under_way_begins_again(self) -> None:
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2)
        driver.join("g", first)
        driver.join("g", second)
        assert driver.state("g") == "CompletingRebalance"
        driver.reload()
        assert driver.state("g") == "Stable"
        assert driver.heartbeat("g", first, generation + 1) == ErrorCode.ILLEGAL_GENERATION
        assert driver.waits(driver.join("g", first))
        driver.join("g", second)
        assert driver.state("g") == "CompletingRebalance"

    def test_a_group_that_was_never_divided_is_gone(self) -> None:
        driver = GroupDriver()
        member_id, _ticket = driver.enter("g")
        driver.reload()
        assert driver.listed() == {}
        assert driver.joined(driver.join("g", member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_empty_group_is_still_empty(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        driver.leave("g", (member_id, None))
        driver.reload()
        assert driver.state("g") == "Empty"
        _member_id, ticket = driver.enter("g")
        assert driver.joined(ticket).generation_id == generation + 2

    def test_records_of_the_first_version(self) -> None:
        driver = GroupDriver()
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="m",
            members=[
                MemberMetadata(
                    member_id="m",
                    client_id="c",
                    client_host="/h",
                    session_timeout=6000,
                    subscription=subscription("t"),
                    assignment=b"A",
                )
            ],
        )
        driver.shard.apply(GroupMetadataKey(group="g"), value)
        driver.perform(driver.shard.on_loaded(driver.now_ms))
        assert driver.heartbeat("g", "m", 4) == ErrorCode.NONE
        driver.join("g", "m", rebalance_ms=-1, session_ms=6000)
        assert driver.timers["sync", "g"] == driver.now_ms + 6000

    def test_only_the_last_record_of_each_key_matters(self) -> None:
        """The log is compacted: what a coordinator knows must not depend on how far."""
        driver = GroupDriver()
        (first, second), generation = driver.stable_group("g", 2)
        driver.commit("g", {("t", 0): 1}, member_id=first, generation=generation)
        driver.leave("g", (second, None))
        driver.settle("g", {first: driver.join("g", first, protocols={"range": subscription("t", "u")})})
        driver.commit("g", {("t", 0): 2}, member_id=first, generation=generation + 1)
        newest = {repr(record.key): record for record in driver.log}
        kept = [record for record in driver.log if newest[repr(record.key)] is record]
        assert len(kept) < len(driver.log)
        compacted = driver.new_shard()
        for record in kept:
            compacted.apply(*through_bytes(record))
        driver.reload()
        live = driver.describe("g"), driver.offsets("g")
        driver.shard = compacted
        assert (driver.describe("g"), driver.offsets("g")) == live

    def test_a_timer_of_what_is_gone_decides_nothing(self) -> None:
        driver = GroupDriver()
        keys = [("session", "g", "m"), ("join", "g"), ("sync", "g"), ("consumer-session", "g", "m"), ("what",), "is"]
        for key in keys:
            decision = driver.shard.on_timer(key, driver.now_ms)
            assert (decision.records, decision.replies, decision.timers) == ([], [], [])


class TestWhereTheTwoKindsMeet:
    def test_a_member_of_the_newer_protocol_may_commit_in_its_epoch(self) -> None:
        driver = GroupDriver()
        epoch = newer_heartbeat(driver, "m", 0).member_epoch
        cases = [
            ("m", epoch, 9, ErrorCode.NONE),
            ("m", epoch + 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
            ("stranger", epoch, 9, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
            ("m", epoch, 8, ErrorCode.UNSUPPORTED_VERSION),
        ]
        for member_id, generation, version, code in cases:
            answer = driver.commit("g", {("t", 0): 1}, member_id=member_id, generation=generation, version=version)
            assert answer.topics[0].partitions[0].error_code == code

    def test_and_is_told_when_it_fetches_in_another(self) -> None:
        driver = GroupDriver()
        epoch = newer_heartbeat(driver, "m", 0).member_epoch
        for member_id, member_epoch, code in (
            ("m", epoch, ErrorCode.NONE),
            ("m", epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("stranger", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
            (None, -1, ErrorCode.NONE),
        ):
            wanted = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=member_epoch, topics=None)
            answer = driver.reply(driver.ask(OffsetFetchRequest(groups=[wanted]), 9), OffsetFetchResponseGroup)
            assert answer.error_code == code

    def test_what_its_members_read_is_not_deleted(self) -> None:
        driver = GroupDriver(t=4, u=4)
        epoch = newer_heartbeat(driver, "m", 0, topics=["t"]).member_epoch
        driver.commit("g", {("t", 0): 1, ("u", 0): 1}, member_id="m", generation=epoch)
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                for name in ("t", "u")
            ],
        )
        answer = driver.reply(driver.ask(request, 0), OffsetDeleteResponse)
        assert [topic.partitions[0].error_code for topic in answer.topics] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]

    def test_what_its_members_read_does_not_expire(self) -> None:
        config = GroupConfig(offsets_retention_ms=100_000, offsets_retention_check_interval_ms=10_000)
        driver = GroupDriver(config, t=4, u=4)
        epoch = newer_heartbeat(driver, "m", 0, topics=["t"]).member_epoch
        driver.commit("g", {("t", 0): 1, ("u", 0): 1}, member_id="m", generation=epoch)
        for _ in range(20):
            driver.advance(10_000)
            newer_heartbeat(driver, "m", epoch)
        assert driver.offsets("g") == {("t", 0): 1}
        newer_heartbeat(driver, "m", -1)
        driver.advance(10_000)
        assert driver.listed() == {}

    def test_an_empty_group_of_the_newer_protocol_becomes_a_classic_one(self) -> None:
        driver = GroupDriver()
        epoch = newer_heartbeat(driver, "m", 0).member_epoch
        driver.commit("g", {("t", 0): 1}, member_id="m", generation=epoch)
        newer_heartbeat(driver, "m", -1)
        driver.stable_group("g")
        assert driver.listed() == {"g": ("Stable", "classic")}
        assert driver.offsets("g") == {("t", 0): 1}
        driver.reload()
        assert driver.listed() == {"g": ("Stable", "classic")}

    def test_an_empty_classic_group_becomes_one_of_the_newer_protocol(self) -> None:
        driver = GroupDriver()
        (member_id,), _generation = driver.stable_group("g")
        driver.leave("g", (member_id, None))
        newer_heartbeat(driver, "m", 0)
        assert list(driver.listed(types=["consumer"])) == ["g"]
        driver.reload()
        assert list(driver.listed(types=["consumer"])) == ["g"]

    def test_classic_members_go_on_when_the_group_is_upgraded_and_back(self) -> None:
        driver = GroupDriver()
        (member_id,), generation = driver.stable_group("g")
        driver.settle_with_assignment("g", member_id, {"t": [0, 1, 2, 3]})
        epoch = newer_heartbeat(driver, "m", 0).member_epoch
        assert list(driver.listed(types=["consumer"])) == ["g"]
        assert driver.heartbeat("g", member_id, generation + 1) == ErrorCode.REBALANCE_IN_PROGRESS
        driver.reload()
        assert {member.member_id for member in describe_newer(driver).members} == {member_id, "m"}
        assert epoch > 0
        newer_heartbeat(driver, "m", -1)
        driver.advance(0)
        assert driver.listed() == {"g": ("PreparingRebalance", "classic")}
        answer = driver.joined(driver.join("g", member_id))
        assert (answer.error_code, answer.leader) == (ErrorCode.NONE, member_id)
        driver.settle("g", {member_id: driver.join("g", member_id)})
        driver.reload()
        assert driver.listed() == {"g": ("Stable", "classic")}

    def test_whoever_waits_in_a_classic_group_is_told_to_join_the_upgraded_one(self) -> None:
        driver = GroupDriver()
        (leader, follower), generation = driver.stable_group("g", 2)
        driver.settle_with_assignment("g", leader, {"t": [0, 1, 2, 3]}, follower)
        waiting = driver.join("g", leader)
        assert driver.waits(waiting)
        newer_heartbeat(driver, "m", 0)
        assert driver.joined(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert not [key for key in driver.timers if isinstance(key, tuple) and key[0] in {"session", "join", "sync"}]
        assert driver.heartbeat("g", follower, generation) == ErrorCode.ILLEGAL_GENERATION

    def test_a_downgraded_group_rebalances_after_a_restart_too(self) -> None:
        driver = GroupDriver()
        (member_id,), _generation = driver.stable_group("g")
        driver.settle_with_assignment("g", member_id, {"t": [0, 1, 2, 3]})
        newer_heartbeat(driver, "m", 0)
        newer_heartbeat(driver, "m", -1)
        driver.reload()
        assert driver.listed() == {"g": ("PreparingRebalance", "classic")}

    def test_what_topics_there_are_is_told_to_the_newer_groups(self) -> None:
        driver = GroupDriver()
        epoch = newer_heartbeat(driver, "m", 0).member_epoch
        assert newer_heartbeat(driver, "m", epoch).assignment is None
        driver.topics.counts["t"] = 6
        driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms))
        answer = newer_heartbeat(driver, "m", epoch)
        assert answer.assignment is not None
        assert answer.assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]
