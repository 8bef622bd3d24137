"""What DescribeConfigs tells of a resource: each value, where it comes from, and what else could have given it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.definition import ConfigSource, ConfigType, Update, format_value
from tidelog.config.keys import BROKER_KEYS, TOPIC_KEYS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.config.definition import Definition


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None if not set, and always if sensitive."""
    source: ConfigSource
    type: ConfigType
    sensitive: bool
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    """Everything that sets this key or stands in for it, the one that counts first."""
    doc: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The keys of one broker; only `names` of them if given. Names that are no keys are left out."""
    return [
        _entry(definition, format_value(config.value(definition.name)), tuple(_broker_synonyms(config, definition)))
        for definition in _chosen(BROKER_KEYS, names)
    ]


def describe_cluster_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The keys set for all brokers at once: the broker resource without a name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    entries = []
    for definition in _chosen(BROKER_KEYS, names):
        text = config.layers.dynamic_default.get(definition.name)
        if text is not None:
            entries.append(_entry(definition, text, (_synonym(definition, text, source),)))
    return entries


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The keys of a topic whose own settings are `overrides`."""
    entries = []
    for definition in _chosen(TOPIC_KEYS, names):
        synonyms: list[ConfigSynonym] = []
        own = overrides.get(definition.name)
        if own is not None:
            synonyms.append(_synonym(definition, own, ConfigSource.TOPIC))
        value = own
        if definition.broker_key is not None:
            synonyms += _broker_synonyms(config, BROKER_KEYS[definition.broker_key])
            if own is None:
                value = format_value(config.value(definition.broker_key))
        elif own is None:
            value = format_value(definition.default)
        entries.append(_entry(definition, value, tuple(synonyms), read_only=False))
    return entries


def _chosen(definitions: Mapping[str, Definition], names: Collection[str] | None) -> Iterator[Definition]:
    for definition in definitions.values():
        if not definition.hidden and (names is None or definition.name in names):
            yield definition


def _entry(
    definition: Definition, value: str | None, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool | None = None
) -> ConfigEntry:
    return ConfigEntry(
        name=definition.name,
        value=None if definition.sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=definition.type,
        sensitive=definition.sensitive,
        read_only=definition.update is Update.READ_ONLY if read_only is None else read_only,
        synonyms=synonyms,
        doc=definition.doc,
    )


def _synonym(definition: Definition, text: str | None, source: ConfigSource) -> ConfigSynonym:
    return ConfigSynonym(definition.name, None if definition.sensitive else text, source)


def _broker_synonyms(config: BrokerConfig, definition: Definition) -> Iterator[ConfigSynonym]:
    """The key and then its coarser ones, since that is the order in which they are asked, whatever set them."""
    chain = (definition, *(BROKER_KEYS[fallback.name] for fallback in definition.fallbacks))
    for key in chain:
        for source, text in config.layers.settings_of(key.name):
            yield _synonym(key, text, source)
    for key in chain:
        default = key.alone if config.alone and key.alone is not None else key.default
        if default is not None:
            yield _synonym(key, format_value(default), ConfigSource.DEFAULT)
