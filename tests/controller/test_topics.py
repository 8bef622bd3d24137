"""Topics in the znode tree: what is created is there after a restart, and what a crash left undone gets done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.clock import SystemClock
from tidelog.config.alter import Alteration, AlterOperation
from tidelog.config.broker import BrokerConfig
from tidelog.controller.image import BrokerImage, ClusterImage
from tidelog.controller.producer_ids import BLOCK_SIZE, ProducerIds
from tidelog.controller.settings import Settings
from tidelog.controller.topic_rules import TopicSpec
from tidelog.controller.topics import Topics
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.znodes import paths
from tidelog.znodes.embedded import EmbeddedHome
from tidelog.znodes.store import Create, Delete

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.config.topic import TopicConfig
    from tidelog.types import TopicId
    from tidelog.znodes.store import ZnodeStore


class Hosted:
    """Remembers what it was told to host."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, TopicConfig] = {}

    def host(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        leader: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        assert any(topic_id)
        assert (leader, leader_epoch, replicas, isr) == (0, 0, (0,), (0,))
        self.partitions[topic_partition] = config

    def drop(self, topic_partition: TopicPartition) -> None:
        del self.partitions[topic_partition]

    def configure(self, topic: str, config: TopicConfig) -> None:
        for each in self.partitions:
            if each.topic == topic:
                self.partitions[each] = config


class Life:
    """One life of a broker on a znode store that outlives it."""

    def __init__(self, znodes: ZnodeStore) -> None:
        self.znodes = znodes
        self.image = ClusterImage("cluster", 0)
        self.image.brokers[0] = BrokerImage(0, {})
        self.hosted = Hosted()
        self.settings = Settings(znodes, self.image, BrokerConfig.parse({}), self.hosted.configure)
        self.topics = Topics(znodes, self.image, self.settings, controller_epoch=1)

    async def start(self) -> Life:
        for path in paths.PERSISTENT:
            if not await self.znodes.exists(path):
                await self.znodes.create(path, make_parents=True)
        await self.settings.load()
        await self.topics.load()
        self.topics.host_all(self.hosted)
        return self


def live(story: Callable[[Callable[[], Awaitable[Life]]], Awaitable[None]]) -> None:
    """Runs a story that can start any number of lives, one after the other."""

    async def main() -> None:
        home = await EmbeddedHome.open(None, SystemClock())

        async def next_life() -> Life:
            return await Life(await home.begin_session()).start()

        await story(next_life)
        await home.close()

    asyncio.run(main())


def a_spec(name: str = "orders", partitions: int = 2, **settings: str) -> TopicSpec:
    return TopicSpec(name, partitions, 1, {}, {key.replace("_", "."): value for key, value in settings.items()})


def test_a_topic_is_hosted_at_once_and_after_a_restart() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        first = await next_life()
        created = await first.topics.create(a_spec(retention_ms="1234"))
        again = await next_life()
        for life in (first, again):
            assert set(life.hosted.partitions) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
            assert all(config.retention_ms == 1234 for config in life.hosted.partitions.values())
            assert life.image.topic_by_id(created.topic_id).name == "orders"

    live(story)


def test_a_dry_run_changes_nothing() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        life = await next_life()
        await life.topics.create(a_spec(), validate_only=True)
        assert not life.image.topics
        assert not life.hosted.partitions

    live(story)


def test_a_topic_created_again_has_another_id() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        life = await next_life()
        first = await life.topics.create(a_spec())
        await life.topics.delete("orders")
        second = await life.topics.create(a_spec())
        assert first.topic_id != second.topic_id
        with pytest.raises(BrokerError) as refusal:
            life.image.topic_by_id(first.topic_id)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_ID

    live(story)


def test_partitions_that_a_crash_left_out_are_made_at_the_next_start() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        first = await next_life()
        await first.topics.create(a_spec(partitions=3))
        await first.znodes.multi(
            [
                operation
                for partition in (1, 2)
                for operation in (
                    Delete(paths.partition_state("orders", partition)),
                    Delete(paths.partition("orders", partition)),
                )
            ]
        )
        again = await next_life()
        assert len(again.hosted.partitions) == 3
        assert await again.znodes.exists(paths.partition_state("orders", 2))

    live(story)


def test_a_deletion_that_a_crash_interrupted_is_finished() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        first = await next_life()
        await first.topics.create(a_spec())
        await first.topics.create(a_spec("kept"))
        await first.znodes.multi([Create(paths.delete_topic("orders"))])
        again = await next_life()
        assert set(again.image.topics) == {"kept"}
        assert await again.znodes.children(paths.TOPICS) == ["kept"]
        assert await again.znodes.children(paths.DELETE_TOPICS) == []
        assert not await again.znodes.exists(paths.topic_config("orders"))

    live(story)


def test_growth_is_kept() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        first = await next_life()
        await first.topics.create(a_spec(partitions=1))
        await first.topics.grow("orders", 4, None, validate_only=False)
        again = await next_life()
        assert len(first.hosted.partitions) == len(again.hosted.partitions) == 4

    live(story)


def test_many_partitions_go_in_several_writes() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        life = await next_life()
        await life.topics.create(a_spec(partitions=1000))
        assert len((await next_life()).hosted.partitions) == 1000

    live(story)


def test_topics_asked_for_at_once_are_made_one_after_the_other() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        life = await next_life()
        results = await asyncio.gather(*(life.topics.create(a_spec()) for _ in range(5)), return_exceptions=True)
        codes = [result.code for result in results if isinstance(result, BrokerError)]
        assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4

    live(story)


def test_changed_topic_settings_are_in_force_at_once_and_kept() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        first = await next_life()
        topic = await first.topics.create(a_spec(partitions=1, retention_ms="1"))
        change = [Alteration("retention.ms", AlterOperation.SET, "99")]
        await first.settings.alter_topic(topic, change, replace=False, validate_only=True)
        assert first.hosted.partitions[TopicPartition("orders", 0)].retention_ms == 1
        await first.settings.alter_topic(topic, change, replace=False, validate_only=False)
        again = await next_life()
        for life in (first, again):
            assert life.hosted.partitions[TopicPartition("orders", 0)].retention_ms == 99

    live(story)


def test_a_dynamic_broker_setting_reaches_the_topics_that_do_not_override_it() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        first = await next_life()
        await first.topics.create(a_spec("own", partitions=1, retention_ms="1"))
        await first.topics.create(a_spec("default", partitions=1))
        change = [Alteration("log.retention.ms", AlterOperation.SET, "77")]
        await first.settings.alter_broker("", change, replace=False, validate_only=False)
        again = await next_life()
        for life in (first, again):
            assert life.hosted.partitions[TopicPartition("own", 0)].retention_ms == 1
            assert life.hosted.partitions[TopicPartition("default", 0)].retention_ms == 77

    live(story)


def test_producer_ids_are_never_given_twice_not_even_after_a_crash() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        life = await next_life()
        one, other = ProducerIds(life.znodes, 0), ProducerIds(life.znodes, 1)
        taken = [await source.take() for source in (one, other, one) for _ in range(BLOCK_SIZE + 1)]
        after_a_crash = ProducerIds(life.znodes, 0)
        taken += [await after_a_crash.take() for _ in range(3)]
        assert len(set(taken)) == len(taken)

    live(story)


def test_producers_that_find_the_block_empty_share_the_next_one() -> None:
    async def story(next_life: Callable[[], Awaitable[Life]]) -> None:
        life = await next_life()
        source = ProducerIds(life.znodes, 0)
        taken = await asyncio.gather(*(source.take() for _ in range(50)))
        assert sorted(taken) == list(range(50))

    live(story)
