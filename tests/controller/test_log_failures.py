"""Replicas whose disk fails on a broker that lives: others lead, and they count as in sync no longer."""

from __future__ import annotations

import asyncio

import pytest
from cluster_double import Cluster, live, until, until_idle

from tidelog.controller import couriers
from tidelog.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.controller.transitions import settle, without
from tidelog.errors import ErrorCode
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest
from tidelog.znodes import paths

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def of(cluster: Cluster, number: int = 0) -> PartitionImage:
    return cluster.controller.state.topics["t"].partitions[number]


@pytest.mark.parametrize(
    ("before", "offline", "after"),
    [
        (PartitionImage((1, 2, 3), (1, 2, 3), 1, 4, 7), {1}, (2, (2, 3))),
        (PartitionImage((1, 2, 3), (1, 2, 3), 1, 4, 7), {2}, (1, (1, 3))),
        (PartitionImage((1, 2, 3), (1, 2, 3), 1, 4, 7), {1, 2, 3}, (-1, (1, 2, 3))),
        (PartitionImage((1, 2, 3), (1,), 1, 4, 7), {1}, (-1, (1,))),
        (PartitionImage((1, 2, 3), (1,), -1, 5, 8), {1}, None),
        (PartitionImage((1, 2, 3), (1, 3), 1, 4, 7), {2}, None),
    ],
    ids=["the leader", "a follower", "all", "the last in sync", "once more", "one out of sync"],
)
def test_what_becomes_of_a_partition_with_failed_replicas(
    before: PartitionImage, offline: set[int], after: tuple[int, tuple[int, ...]] | None
) -> None:
    image = ClusterImage("cluster", 1)
    image.brokers = {each: BrokerImage(each, {}, epoch=each) for each in (1, 2, 3)}
    image.put_topic(TopicImage("t", TopicId(b"t" * 16), [before]))
    image.offline[T0] = frozenset(offline)
    changes = settle(image, set(), lambda _topic: False)
    found = [(change.partition.leader, change.partition.isr) for change in changes]
    assert found == ([] if after is None else [after])


def test_an_unclean_election_passes_a_failed_replica_over() -> None:
    image = ClusterImage("cluster", 1)
    image.brokers = {each: BrokerImage(each, {}, epoch=each) for each in (1, 2, 3)}
    image.put_topic(TopicImage("t", TopicId(b"t" * 16), [PartitionImage((1, 2, 3), (1,), 1, 4, 7)]))
    image.offline[T0] = frozenset({1, 2})
    (change,) = settle(image, set(), lambda _topic: True)
    assert (change.partition.leader, change.partition.isr) == (3, (3,))


def test_what_is_offline_ends_with_its_broker_and_with_its_topic() -> None:
    offline = {T0: frozenset({1, 2}), T1: frozenset({2})}
    assert without(offline, {2}) == {T0: frozenset({1})}
    image = ClusterImage("cluster", 1, offline=offline)
    image.put_topic(TopicImage("t", TopicId(b"t" * 16), []))
    image.drop_topic("t")
    assert not image.offline


def test_a_leader_that_answers_with_a_storage_error_is_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.members[2].told.failed_logs.add(T0)
        await cluster.create(assignment={0: [2, 3, 1], 1: [2, 3, 1]})
        await until_idle(cluster.controller)
        assert (of(cluster).leader, of(cluster).isr) == (3, (3, 1))
        assert of(cluster, 1).leader == 2
        await cluster.check_agreement()
        outcome = await cluster.controller.elect_leaders(0, [T0])
        assert outcome == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    live(story)


def test_a_broker_that_leaves_a_note_is_asked_which_of_its_logs_have_failed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3], 1: [3, 2]})
        await cluster.fail_log(2, T0, T1)
        assert (of(cluster).leader, of(cluster).isr) == (3, (3,))
        assert (of(cluster, 1).leader, of(cluster, 1).isr) == (3, (3,))
        assert not await cluster.admin.children(paths.LOG_DIR_EVENTS)
        told = [each for each in cluster.members[1].told.requests if isinstance(each, UpdateMetadataRequest)][-1]
        assert [state.offline_replicas for state in told.topic_states[0].partition_states] == [[2]]
        assert await cluster.grow_isr("t", 0, 3, 2) is ErrorCode.INELIGIBLE_REPLICA
        await cluster.check_agreement()

    live(story)


def test_the_last_in_sync_leads_no_more_and_comes_back_with_its_broker() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        await cluster.kill(3)
        await until_idle(cluster.controller)
        await cluster.fail_log(2, T0)
        assert (of(cluster).leader, of(cluster).isr) == (-1, (2,))
        cluster.members[2].told.failed_logs.clear()
        await cluster.members[2].bounce()
        await until_idle(cluster.controller)
        assert (of(cluster).leader, of(cluster).isr) == (2, (2,))
        assert not cluster.controller.state.offline

    live(story)


def test_the_next_controller_finds_out_by_itself() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2], 1: [3]})
        await cluster.fail_log(2, T0)
        await cluster.kill(1)
        controller = await cluster.settled()
        assert (of(cluster).leader, of(cluster, 1).leader) == (-1, 3)
        assert controller.state.offline == {T0: frozenset({2})}

    live(story)


def test_a_replica_that_could_not_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "MEND_FIRST_S", 0.0)
    monkeypatch.setattr(couriers, "MEND_MAX_S", 0.0)

    async def story(cluster: Cluster) -> None:
        failed = cluster.members[2].told.failed_logs
        failed.add(T0)
        await cluster.create(assignment={0: [2]})
        await until(lambda: of(cluster).leader == -1)
        failed.clear()
        await until(lambda: of(cluster).leader == 2)
        assert not cluster.controller.state.offline

    live(story)


def test_a_note_that_nobody_can_read_is_removed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.admin.create(paths.LOG_DIR_EVENT_PREFIX, b"?", sequential=True)
        await until_idle(cluster.controller)
        assert not await cluster.admin.children(paths.LOG_DIR_EVENTS)
        await asyncio.sleep(0)
        assert cluster.controller.epoch == 1

    live(story)
