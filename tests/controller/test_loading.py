"""What a new controller makes of the tree it finds: half-made topics, bad nodes, moves that a crash cut in two."""

from __future__ import annotations

from cluster_double import Cluster, live, until_idle

from tidelog.controller.image import NO_LEADER, PartitionImage
from tidelog.controller.loading import load_brokers, load_topics
from tidelog.types import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.znodes import nodes, paths
from tidelog.znodes.store import Create, Delete, SetData


async def put_topic(
    cluster: Cluster, name: str, *replicas: tuple[int, ...], **moves: dict[int, tuple[int, ...]]
) -> None:
    """The topic's own node and no more."""
    node = nodes.TopicAssignment(TopicId(name.encode() * 16), dict(enumerate(replicas)), **moves)
    await cluster.admin.create(paths.topic(name), node.encode())


async def put_state(cluster: Cluster, name: str, number: int, leader: int, isr: tuple[int, ...]) -> None:
    state = nodes.PartitionState(BrokerId(leader), LeaderEpoch(3), isr, 1)
    await cluster.admin.create(paths.partition_state(name, number), state.encode(), make_parents=True)


async def change_of_reign(cluster: Cluster) -> None:
    """Another controller reads everything."""
    await cluster.admin.delete(paths.CONTROLLER)
    await until_idle(await cluster.settled())


def test_half_made_topics_are_finished() -> None:
    async def story(cluster: Cluster) -> None:
        await put_topic(cluster, "a", (1, 2), (2, 3))
        await put_topic(cluster, "b", (1, 2), (2, 3), (3, 1))
        await cluster.admin.multi(
            [Create(paths.partitions("b")), Create(paths.partition("b", 0)), Create(paths.partition("b", 2))]
        )
        await put_state(cluster, "b", 2, 3, (3, 1))
        await change_of_reign(cluster)
        await cluster.check_agreement()
        topics = cluster.controller.state.topics
        assert [each.leader for each in topics["a"].partitions] == [1, 2]
        assert [each.leader for each in topics["b"].partitions] == [1, 2, 3]
        assert topics["b"].partitions[0].isr == (1, 2)

    live(story)


def test_half_made_topics_whose_brokers_are_away_wait_for_any_of_them() -> None:
    async def story(cluster: Cluster) -> None:
        await put_topic(cluster, "a", (8, 9))
        await change_of_reign(cluster)
        assert cluster.controller.state.topics["a"].partitions == [PartitionImage((8, 9), (8, 9), NO_LEADER, 0)]
        await cluster.add(9)
        await until_idle(cluster.controller)
        (partition,) = cluster.controller.state.topics["a"].partitions
        assert (partition.leader, partition.isr) == (9, (9,))

    live(story)


def test_bad_nodes_do_not_keep_a_cluster_from_having_a_controller() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("good", partitions=2, factor=2)
        await cluster.admin.multi(
            [
                Create(paths.topic("bad"), b"nonsense"),
                Create(paths.broker(77), b"nonsense"),
                Create(f"{paths.BROKER_IDS}/nonsense"),
                SetData(paths.topic_config("good"), b"nonsense"),
                SetData(paths.partition_state("good", 1), b"nonsense"),
            ]
        )
        await change_of_reign(cluster)
        state = cluster.controller.state
        assert state.topics.keys() == {"good"}
        assert state.brokers.keys() == {1, 2, 3}
        assert state.topics["good"].settings == {}
        first, second = state.topics["good"].partitions
        assert first.leader in state.brokers
        assert (second.leader, second.isr) == (NO_LEADER, ())

    live(story)


def test_a_partitions_state_is_trimmed_to_its_replicas() -> None:
    """The replicas of a topic and the state of a partition may be written by different transactions."""

    async def story(cluster: Cluster) -> None:
        await put_topic(cluster, "a", (2, 3), (2, 3))
        await put_state(cluster, "a", 0, 1, (1, 2))
        await put_state(cluster, "a", 1, 2, (1, 2))
        await change_of_reign(cluster)
        await cluster.check_agreement()
        first, second = cluster.controller.state.topics["a"].partitions
        assert (first.leader, first.isr) == (2, (2,))
        assert (second.leader, second.isr) == (2, (2,))

    live(story)


def test_moves_are_read_with_their_topics() -> None:
    async def story(cluster: Cluster) -> None:
        await put_topic(cluster, "a", (2, 3, 1), adding={0: (3,)}, removing={0: (1,)})
        await put_state(cluster, "a", 0, 1, (1, 2))
        brokers = await load_brokers(cluster.admin, lambda _event: None)
        loaded = await load_topics(cluster.admin, brokers)
        ((partition,),) = (topic.partitions for topic in loaded.topics)
        assert partition == PartitionImage((2, 3, 1), (1, 2), 1, 3, 0, adding=(3,), removing=(1,))
        assert loaded.changed_at.keys() == {TopicPartition("a", 0)}
        assert not loaded.unborn

    live(story)


def test_a_broker_that_vanishes_while_brokers_are_read_is_left_to_the_watch() -> None:
    async def story(cluster: Cluster) -> None:
        found = await load_brokers(cluster.admin, lambda _event: None)
        assert [(each.broker_id, each.rack) for each in found.values()] == [(1, None), (2, None), (3, None)]
        assert found[2].endpoints["PLAINTEXT"].host == "host2"
        assert found[2].epoch == cluster.members[2].told.epoch

        async def vanishing(path: str, **_options: object) -> list[str]:
            names = await type(cluster.admin).children(cluster.admin, path)
            await cluster.admin.multi([Delete(paths.broker(3))])
            return names

        cluster.admin.children = vanishing  # type: ignore[method-assign]
        assert (await load_brokers(cluster.admin, lambda _event: None)).keys() == {1, 2}
        del cluster.admin.children
        await cluster.members[3].register()

    live(story)
