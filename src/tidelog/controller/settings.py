"""The settings in force, and changing them while the broker runs.

Topics' own settings live under `/config/topics`, brokers' dynamic ones under `/config/brokers`. Any broker may change
them: it writes the new ones together with a note under `/config/changes`, which every broker watches (`follow`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.config.alter import altered, validate_broker_overrides, validate_topic_overrides
from tidelog.config.definition import ConfigError
from tidelog.config.keys import BROKER_KEYS, TOPIC_KEYS
from tidelog.config.topic import resolve_topic_config
from tidelog.errors import BrokerError, ErrorCode
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import BadVersion, MultiError, NodeExists, NodeFormatError, NoNode
from tidelog.znodes.store import Create, SetData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidelog.config.alter import Alteration
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.definition import Value
    from tidelog.config.topic import TopicConfig
    from tidelog.controller.image import ClusterImage, TopicImage
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

CLUSTER_DEFAULT = ""
"""The broker resource that stands for all brokers."""

ATTEMPTS_MAX = 20


class Settings:
    def __init__(
        self,
        znodes: ZnodeStore,
        image: ClusterImage,
        broker: BrokerConfig,
        on_topic_config: Callable[[str, TopicConfig], None],
    ) -> None:
        self._znodes = znodes
        self._image = image
        self._on_topic_config = on_topic_config
        self._changes = asyncio.Lock()  # one change at a time: each starts from what the one before left
        self._topics: dict[str, dict[str, str]] = {}
        self.broker = broker
        """This broker's settings, dynamic ones included. Replaced as a whole when one changes."""
        self.on_topic_settings: Callable[[str, dict[str, str]], None] = lambda _name, _settings: None
        """Called with a topic's own settings when they have changed, here or on another broker."""
        self.on_broker_settings: Callable[[], None] = lambda: None
        """Called when dynamic settings of this broker or of all have changed."""

    async def load(self) -> None:
        """Reads all settings anew."""
        names = await self._znodes.children(paths.CONFIG_BROKERS)
        await self.reread_brokers(CLUSTER_DEFAULT if name == paths.DEFAULT_ENTITY else name for name in names)
        await self.learn(await self._znodes.children(paths.CONFIG_TOPICS))

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        return resolve_topic_config(self.broker, overrides)

    def of_topic(self, name: str) -> dict[str, str]:
        """A topic's own settings, as far as this broker has heard of them."""
        return self._topics.get(name, {})

    async def learn(self, names: Iterable[str]) -> None:
        """Reads topics' own settings: of those that are new to this broker, or have been created again."""
        wanted = list(names)
        found = await self._znodes.get_many([paths.topic_config(name) for name in wanted])
        for name, node in zip(wanted, found, strict=True):
            if node is None:
                continue
            try:
                self.learned(name, nodes.decode_config(paths.topic_config(name), node[0]))
            except NodeFormatError as error:
                logger.error("the settings of topic %s are left as they are: %s", name, error)

    def learned(self, name: str, settings: dict[str, str]) -> None:
        """Takes up a topic's own settings, whoever has changed them."""
        changed = self._topics.get(name, {}) != settings
        self._topics[name] = settings
        topic = self._image.topics.get(name)
        if topic is not None and topic.settings != settings:
            topic.settings = settings
            self._image.touch()
            changed = True
        if changed:
            self._on_topic_config(name, self.topic_config(settings))
            self.on_topic_settings(name, settings)

    def forget(self, name: str) -> None:
        """The topic is gone."""
        self._topics.pop(name, None)

    async def reread_brokers(self, resources: Iterable[str]) -> None:
        """Takes up the dynamic settings of brokers, or of all of them, as they are stored now."""
        wanted = [resource for resource in resources if resource == CLUSTER_DEFAULT or resource.isdecimal()]
        found = await self._znodes.get_many([_broker_path(resource) for resource in wanted])
        changed = False
        for resource, node in zip(wanted, found, strict=True):
            try:
                own = nodes.decode_config(_broker_path(resource), node[0]) if node else {}
            except NodeFormatError as error:
                logger.error("dynamic broker settings are left as they are: %s", error)
            else:
                changed |= self._image.broker_settings.get(resource, {}) != own
                self._image.broker_settings[resource] = own
        if not changed:
            return
        try:
            self._take_up(self._broker_config(self._image.broker_settings))
        except BrokerError as error:
            # They were valid when they were set. A broker that does not start helps nobody to mend them.
            logger.error("the dynamic broker settings cannot be used together, and are left out: %s", error)

    async def alter_topic(
        self, topic: TopicImage, alterations: Sequence[Alteration], *, replace: bool, validate_only: bool
    ) -> None:
        """Changes a topic's own settings; `replace` starts from none, as the old AlterConfigs does."""
        path = paths.topic_config(topic.name)
        async with self._changes:
            for _ in range(ATTEMPTS_MAX):
                stored, version = await self._read(path)
                effective = self.topic_config(stored)

                def in_force(name: str, effective: TopicConfig = effective) -> Value:
                    value = getattr(effective, TOPIC_KEYS[name].attribute)
                    return tuple(sorted(value)) if isinstance(value, frozenset) else value

                settings = altered(TOPIC_KEYS, {} if replace else stored, alterations, in_force)
                validate_topic_overrides(settings)
                if validate_only:
                    return
                if await self._write(path, settings, version, f"topics/{topic.name}"):
                    self.learned(topic.name, settings)
                    return
        raise _contended()

    async def alter_broker(
        self, resource: str, alterations: Sequence[Alteration], *, replace: bool, validate_only: bool
    ) -> None:
        """Changes the dynamic settings of one broker, or of all with the empty resource name."""
        path = _broker_path(resource)
        async with self._changes:
            for _ in range(ATTEMPTS_MAX):
                current, version = await self._read(path)
                settings = altered(BROKER_KEYS, {} if replace else current, alterations, self.broker.value)
                changed = {name: text for name, text in settings.items() if current.get(name) != text}
                validate_broker_overrides(changed, per_broker=resource != CLUSTER_DEFAULT)
                broker = self._broker_config({**self._image.broker_settings, resource: settings})
                if validate_only:
                    return
                entity = f"brokers/{resource if resource != CLUSTER_DEFAULT else paths.DEFAULT_ENTITY}"
                if await self._write(path, settings, version, entity):
                    self._image.broker_settings[resource] = settings
                    self._take_up(broker)
                    return
        raise _contended()

    async def _read(self, path: str) -> tuple[dict[str, str], int | None]:
        """What is stored now, and its version; None: nothing is."""
        try:
            data, stat = await self._znodes.get(path)
        except NoNode:
            return {}, None
        try:
            return nodes.decode_config(path, data), stat.version
        except NodeFormatError as error:
            logger.error("settings that cannot be read are replaced: %s", error)
            return {}, stat.version

    async def _write(self, path: str, settings: Mapping[str, str], version: int | None, entity: str) -> bool:
        """Stores settings and tells all brokers. False: somebody else has changed them meanwhile."""
        data = nodes.encode_config(settings)
        note = Create(paths.CONFIG_CHANGE_PREFIX, nodes.encode_config_change(entity), sequential=True)
        try:
            await self._znodes.multi([Create(path, data) if version is None else SetData(path, data, version), note])
        except MultiError as error:
            if isinstance(error.cause, (BadVersion, NodeExists, NoNode)) and error.index == 0:
                return False
            raise
        return True

    def _take_up(self, broker: BrokerConfig) -> None:
        self.broker = broker
        for topic in self._image.topics.values():
            self._on_topic_config(topic.name, self.topic_config(topic.settings))
        self.on_broker_settings()

    def _broker_config(self, dynamic: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        try:
            return self.broker.with_dynamic(
                default=dynamic.get(CLUSTER_DEFAULT, {}), broker=dynamic.get(str(self.broker.broker_id), {})
            )
        except ConfigError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _broker_path(resource: str) -> str:
    return paths.broker_config(None if resource == CLUSTER_DEFAULT else int(resource))


def _contended() -> BrokerError:
    return BrokerError(ErrorCode.REQUEST_TIMED_OUT, "others keep changing these settings: try again")
