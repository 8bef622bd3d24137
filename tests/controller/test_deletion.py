"""Deleting topics: gone for clients at once, gone for good when every broker that held it has answered."""

from __future__ import annotations

import asyncio

import pytest
from cluster_double import Cluster, live, until, until_idle

from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.znodes import paths
from tidelog.znodes.store import Create

T0 = TopicPartition("t", 0)


async def leftovers(cluster: Cluster, name: str = "t") -> list[str]:
    wanted = [paths.topic(name), paths.topic_config(name), paths.delete_topic(name)]
    return [path for path in wanted if await cluster.admin.exists(path)]


def test_a_topic_goes_with_everything_that_belongs_to_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=700, factor=2, retention_ms="5")
        await cluster.controller.delete("t")
        assert await leftovers(cluster) == []
        assert not any(member.told.roles or member.told.leaders for member in cluster.members.values())
        await cluster.create(partitions=2, factor=2)
        await cluster.check_agreement()

    live(story)


def test_the_answer_waits_for_brokers_that_live() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        cluster.members[3].told.answering.clear()
        deleting = asyncio.ensure_future(cluster.controller.delete("t"))
        await until(lambda: T0 not in cluster.members[2].told.roles)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not deleting.done()
        with pytest.raises(BrokerError) as refused:
            await cluster.create(assignment={0: [1]})
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        cluster.members[3].told.answering.set()
        await deleting
        assert await leftovers(cluster) == []

    live(story)


def test_a_broker_that_is_away_deletes_when_it_returns() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        await cluster.kill(3)
        await cluster.settled()
        await cluster.controller.delete("t")
        assert "t" not in cluster.controller.state.topics
        assert await leftovers(cluster) == [paths.topic("t"), paths.topic_config("t"), paths.delete_topic("t")]
        returned = await cluster.add(3, stand=False)
        returned.told.roles[T0] = (3, 0, (3,), (2, 3))
        await until(lambda: T0 not in returned.told.roles)
        await until_idle(cluster.controller)
        assert await leftovers(cluster) == []

    live(story)


def test_one_that_dies_while_it_deletes_keeps_nobody_waiting() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        cluster.members[3].told.answering.clear()
        deleting = asyncio.ensure_future(cluster.controller.delete("t"))
        await until(lambda: T0 not in cluster.members[2].told.roles)
        await cluster.kill(3)
        await deleting
        assert paths.delete_topic("t") in await leftovers(cluster)

    live(story)


def test_one_that_will_not_return_is_given_up() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        await cluster.kill(3)
        await cluster.settled()
        await cluster.controller.delete("t")
        await cluster.controller.unregister_broker(3)
        await until_idle(cluster.controller)
        assert await leftovers(cluster) == []

    live(story)


def test_one_that_cannot_delete_is_asked_again_when_it_comes_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [3]})
        member = cluster.members[3]
        member.told.cannot_delete = True
        deleting = asyncio.ensure_future(cluster.controller.delete("t"))
        await until(lambda: T0 not in cluster.members[1].told.leaders)
        await until_idle(cluster.controller)
        member.told.cannot_delete = False
        await member.bounce()
        await deleting
        assert await leftovers(cluster) == []

    live(story)


def test_the_next_controller_finishes_a_deletion() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        cluster.members[3].told.answering.clear()
        deleting = asyncio.ensure_future(cluster.controller.delete("t"))
        await until(lambda: T0 not in cluster.members[2].told.leaders)
        await cluster.kill(1)
        with pytest.raises(BrokerError) as refused:
            await deleting
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        cluster.members[3].told.answering.set()
        await until_idle(await cluster.settled())
        assert paths.delete_topic("t") in await leftovers(cluster), "broker 1 is away and holds it"
        assert not cluster.controller.state.topics
        await cluster.add(1, stand=False)
        await until_idle(cluster.controller)
        assert await leftovers(cluster) == []

    live(story)


def test_a_deletion_that_was_interrupted_in_the_znode_tree_is_finished() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1], 1: [1]})
        await cluster.admin.multi([Create(paths.delete_topic("t")), Create(paths.delete_topic("half"))])
        await cluster.admin.delete(paths.partition_state("t", 1))
        await cluster.kill(2)
        await until_idle(cluster.controller)
        assert await leftovers(cluster) == []
        assert await leftovers(cluster, "half") == []

    live(story)


def test_nodes_that_others_put_below_a_topic_go_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1]})
        await cluster.admin.create(f"{paths.topic('t')}/note")
        await cluster.controller.delete("t")
        assert await leftovers(cluster) == []

    live(story)


def test_kafkas_tools_delete_by_a_mark() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        await cluster.admin.create(paths.delete_topic("t"))
        await until_idle(cluster.controller)
        assert await leftovers(cluster) == []

    live(story)


def test_a_mark_is_removed_where_deletion_is_not_allowed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        await cluster.admin.create(paths.delete_topic("t"))
        await until_idle(cluster.controller)
        assert await cluster.admin.exists(paths.delete_topic("t")) is None
        await cluster.check_agreement()
        assert "t" in cluster.controller.state.topics

    live(story, properties={"delete.topic.enable": "false"})


def test_what_is_not_there_cannot_be_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        with pytest.raises(BrokerError) as refused:
            await cluster.controller.delete("nothing")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    live(story)
