"""The settings in force, and changing them while the broker runs.

Topics' own settings live under `/config/topics`, brokers' dynamic ones under `/config/brokers`. A change is validated,
written to the znode store, and then in force at once.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.config.alter import Alteration
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.definition import Value
    from tidelog.config.topic import TopicConfig
    from tidelog.controller.image import ClusterImage, TopicImage
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

CLUSTER_DEFAULT = ""
"""The broker resource that stands for all brokers."""


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
        self.broker = broker
        """This broker's settings, dynamic ones included. Replaced as a whole when one changes."""

    async def load(self) -> None:
        for child in await self._znodes.children(paths.CONFIG_BROKERS):
            path = f"{paths.CONFIG_BROKERS}/{child}"
            data, _stat = await self._znodes.get(path)
            resource = CLUSTER_DEFAULT if child == paths.DEFAULT_ENTITY else child
            self._image.broker_settings[resource] = nodes.decode_config(path, data)
        try:
            self.broker = self._broker_config(self._image.broker_settings)
        except BrokerError as error:
            # They were valid when they were set. A broker that does not start helps nobody to mend them.
            logger.error("the dynamic broker settings cannot be used together, and are left out: %s", error)

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        return resolve_topic_config(self.broker, overrides)

    async def alter_topic(
        self, topic: TopicImage, alterations: Sequence[Alteration], *, replace: bool, validate_only: bool
    ) -> None:
        """Changes a topic's own settings; `replace` starts from none, as the old AlterConfigs does."""
        async with self._changes:
            current = {} if replace else topic.settings
            effective = self.topic_config(topic.settings)

            def in_force(name: str) -> Value:
                value = getattr(effective, TOPIC_KEYS[name].attribute)
                return tuple(sorted(value)) if isinstance(value, frozenset) else value

            settings = altered(TOPIC_KEYS, current, alterations, in_force)
            validate_topic_overrides(settings)
            if validate_only:
                return
            await put(self._znodes, paths.topic_config(topic.name), nodes.encode_config(settings))
            topic.settings = settings
            self._image.touch()
            self._on_topic_config(topic.name, self.topic_config(settings))

    async def alter_broker(
        self, resource: str, alterations: Sequence[Alteration], *, replace: bool, validate_only: bool
    ) -> None:
        """Changes the dynamic settings of one broker, or of all with the empty resource name."""
        async with self._changes:
            current = self._image.broker_settings.get(resource, {})
            settings = altered(BROKER_KEYS, {} if replace else current, alterations, self.broker.value)
            changed = {name: text for name, text in settings.items() if current.get(name) != text}
            validate_broker_overrides(changed, per_broker=resource != CLUSTER_DEFAULT)
            broker = self._broker_config({**self._image.broker_settings, resource: settings})
            if validate_only:
                return
            path = paths.broker_config(None if resource == CLUSTER_DEFAULT else int(resource))
            await put(self._znodes, path, nodes.encode_config(settings))
            self._image.broker_settings[resource] = settings
            self.broker = broker
            for topic in self._image.topics.values():
                self._on_topic_config(topic.name, self.topic_config(topic.settings))

    def _broker_config(self, dynamic: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        try:
            return self.broker.with_dynamic(
                default=dynamic.get(CLUSTER_DEFAULT, {}), broker=dynamic.get(str(self.broker.broker_id), {})
            )
        except ConfigError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from error


async def put(znodes: ZnodeStore, path: str, data: bytes) -> None:
    """Writes a node whether or not it is there."""
    if await znodes.exists(path):
        await znodes.set(path, data)
    else:
        await znodes.create(path, data, make_parents=True)
