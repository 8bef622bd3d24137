"""Settings that any broker may change and every broker follows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster_double import UnsteadyStore, until

from tidelog.clock import SystemClock
from tidelog.config.alter import Alteration, AlterOperation
from tidelog.config.broker import BrokerConfig
from tidelog.controller.image import ClusterImage, TopicImage
from tidelog.controller.settings import CLUSTER_DEFAULT, Settings
from tidelog.controller.settings_follower import NOTE_KEPT_MS, SettingsFollower
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicId
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import EmbeddedHome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.config.topic import TopicConfig


class Office:
    """A broker's settings, and what it has heard of them."""

    def __init__(self, store: UnsteadyStore, broker_id: int) -> None:
        self.store = store
        self.image = ClusterImage("cluster", 1)
        self.topic = TopicImage("t", TopicId(b"t" * 16), [])
        self.image.put_topic(self.topic)
        self.heard: list[tuple[str, int]] = []
        self.told: list[tuple[str, dict[str, str]]] = []
        config = BrokerConfig.parse({"broker.id": str(broker_id)})
        self.settings = Settings(store, self.image, config, self._hear)
        self.settings.on_topic_settings = lambda name, own: self.told.append((name, own))
        self.clock = LateClock()
        self.follower = SettingsFollower(store, self.settings, self.clock)

    def _hear(self, name: str, config: TopicConfig) -> None:
        self.heard.append((name, config.retention_ms))


class LateClock(SystemClock):
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def with_offices(story: Callable[[Office, Office], Awaitable[None]]) -> None:
    async def main() -> None:
        home = await EmbeddedHome.open(None, SystemClock())
        offices = [Office(UnsteadyStore(home, await home.begin_session()), broker_id) for broker_id in (1, 2)]
        for path in paths.PERSISTENT:
            await offices[0].store.create(path, make_parents=True)
        for office in offices:
            await office.follower.start()
            assert not office.heard
        await story(*offices)
        for office in offices:
            await office.follower.stop()
        await home.close()

    asyncio.run(main())


def setting(name: str, value: str) -> list[Alteration]:
    return [Alteration(name, AlterOperation.SET, value)]


async def alter(office: Office, name: str, value: str, *, replace: bool = False, validate_only: bool = False) -> None:
    await office.settings.alter_topic(office.topic, setting(name, value), replace=replace, validate_only=validate_only)


def test_what_one_broker_changes_the_others_take_up() -> None:
    async def story(one: Office, other: Office) -> None:
        await alter(one, "retention.ms", "77")
        assert one.topic.settings == one.settings.of_topic("t") == {"retention.ms": "77"}
        await until(lambda: other.topic.settings == {"retention.ms": "77"})
        assert other.heard == one.heard == [("t", 77)]
        assert other.told == [("t", {"retention.ms": "77"})]

    with_offices(story)


def test_changes_at_the_same_time_do_not_undo_each_other() -> None:
    async def story(one: Office, other: Office) -> None:
        await asyncio.gather(
            *(
                alter(office, name, "77")
                for office, name in (
                    (one, "retention.ms"),
                    (other, "segment.ms"),
                    (one, "flush.ms"),
                    (other, "flush.messages"),
                )
            )
        )
        expected = dict.fromkeys(("retention.ms", "segment.ms", "flush.ms", "flush.messages"), "77")
        await until(lambda: one.topic.settings == other.topic.settings == expected)

    with_offices(story)


def test_a_dry_run_and_a_bad_value_change_nothing() -> None:
    async def story(one: Office, _other: Office) -> None:
        await alter(one, "retention.ms", "77", validate_only=True)
        with pytest.raises(BrokerError) as refused:
            await alter(one, "retention.ms", "much")
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        assert await one.store.exists(paths.topic_config("t")) is None
        assert not one.heard

    with_offices(story)


def test_replacing_begins_from_none() -> None:
    async def story(one: Office, _other: Office) -> None:
        await alter(one, "retention.ms", "77")
        await alter(one, "segment.ms", "88", replace=True)
        assert one.topic.settings == {"segment.ms": "88"}

    with_offices(story)


def test_dynamic_broker_settings_are_followed_too() -> None:
    async def story(one: Office, other: Office) -> None:
        await one.settings.alter_broker(
            CLUSTER_DEFAULT, setting("min.insync.replicas", "2"), replace=False, validate_only=False
        )
        assert one.settings.broker.min_insync_replicas == 2
        await until(lambda: other.settings.broker.min_insync_replicas == 2)
        await one.settings.alter_broker(
            "2", setting("leader.replication.throttled.rate", "9"), replace=False, validate_only=False
        )
        await until(lambda: other.settings.broker.leader_replication_throttled_rate == 9)
        assert one.settings.broker.leader_replication_throttled_rate != 9

    with_offices(story)


def test_what_was_missed_while_the_session_wavered_is_read_anew() -> None:
    async def story(one: Office, other: Office) -> None:
        other.store.suspend()
        await alter(one, "retention.ms", "77")
        other.store.resume()
        await until(lambda: other.topic.settings == {"retention.ms": "77"})

    with_offices(story)


def test_nodes_that_hold_something_else_do_no_harm() -> None:
    async def story(one: Office, other: Office) -> None:
        await one.store.create(paths.topic_config("t"), b"nonsense")
        for note in (nodes.encode_config_change("topics/t"), b"nonsense", nodes.encode_config_change("else/x")):
            await one.store.create(paths.CONFIG_CHANGE_PREFIX, note, sequential=True)
        await alter(one, "retention.ms", "77")
        await until(lambda: other.topic.settings == {"retention.ms": "77"})

    with_offices(story)


def test_old_notes_are_cleared_away() -> None:
    async def story(one: Office, other: Office) -> None:
        await alter(one, "retention.ms", "77")
        await until(lambda: other.topic.settings == {"retention.ms": "77"})
        other.clock.ahead_ms = NOTE_KEPT_MS + 1000
        await alter(one, "retention.ms", "78")
        await until(lambda: other.topic.settings == {"retention.ms": "78"})
        for _ in range(50):
            await asyncio.sleep(0)
        assert await one.store.children(paths.CONFIG_CHANGES) == []

    with_offices(story)


def test_a_new_topics_settings_are_read_when_asked_for() -> None:
    async def story(one: Office, other: Office) -> None:
        await one.store.create(paths.topic_config("new"), nodes.encode_config({"retention.ms": "5"}))
        assert other.settings.of_topic("new") == {}
        await other.settings.learn(["new", "nothing"])
        assert other.settings.of_topic("new") == {"retention.ms": "5"}
        assert other.heard == [("new", 5)]
        other.settings.forget("new")
        assert other.settings.of_topic("new") == {}

    with_offices(story)


def test_everything_is_read_at_the_start() -> None:
    async def story(one: Office, other: Office) -> None:
        await alter(one, "retention.ms", "77")
        await other.follower.stop()
        late = Office(other.store, 2)
        await late.follower.start()
        assert late.topic.settings == {"retention.ms": "77"}
        await late.follower.stop()

    with_offices(story)
