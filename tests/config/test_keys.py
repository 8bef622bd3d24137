"""The tables of keys are consistent with themselves, with BrokerConfig and with TopicConfig."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from tidelog.config import broker as broker_module
from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigType, Definition, format_value
from tidelog.config.keys import BROKER_KEYS, TOPIC_KEYS
from tidelog.config.keys.unused import REPLACED_KEYS, UNUSED_KEYS, UNUSED_PREFIXES
from tidelog.config.topic import TopicConfig, resolve_topic_config

PYTHON_TYPES: dict[ConfigType, type] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}
NOT_KEYS = {"layers", "endpoints", "warnings", "listener_overrides"}

ALL_KEYS = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


@pytest.mark.parametrize("definition", ALL_KEYS, ids=lambda definition: definition.name)
def test_defaults_pass_their_own_checks(definition: Definition) -> None:
    for default in (definition.default, definition.alone):
        text = format_value(default)
        if text is not None:
            assert definition.parse(text) == default


@pytest.mark.parametrize("definition", ALL_KEYS, ids=lambda definition: definition.name)
def test_every_key_explains_itself(definition: Definition) -> None:
    assert definition.doc.endswith(".")


@pytest.mark.parametrize("definition", BROKER_KEYS.values(), ids=lambda definition: definition.name)
def test_fallbacks_are_keys_and_the_last_has_a_default(definition: Definition) -> None:
    for fallback in definition.fallbacks:
        assert fallback.name in BROKER_KEYS
    if definition.fallbacks:
        assert BROKER_KEYS[definition.fallbacks[-1].name].default is not None


def test_broker_config_has_exactly_the_keys_as_attributes_of_their_types() -> None:
    hints = typing.get_type_hints(BrokerConfig, vars(broker_module) | {
        "Mapping": typing.Mapping, "Value": object, "ListenerSet": object
    })  # fmt: skip
    attributes = {field.name: hints[field.name] for field in dataclasses.fields(BrokerConfig)}
    expected = {}
    for definition in BROKER_KEYS.values():
        kind = PYTHON_TYPES[definition.type]
        unset = definition.default is None and not definition.fallbacks
        expected[definition.attribute] = kind | None if unset else kind
    assert {name: kind for name, kind in attributes.items() if name not in NOT_KEYS} == expected


def test_topic_defaults_are_those_of_the_log_and_of_the_broker() -> None:
    assert resolve_topic_config(BrokerConfig.parse({}), {}) == TopicConfig()


def test_every_topic_setting_is_a_topic_key() -> None:
    fields = {field.name for field in dataclasses.fields(TopicConfig)}
    assert fields == {definition.attribute for definition in TOPIC_KEYS.values() if not definition.hidden}


def test_keys_without_effect_are_not_keys_with_one() -> None:
    assert not UNUSED_KEYS & BROKER_KEYS.keys()
    assert not REPLACED_KEYS.keys() & BROKER_KEYS.keys()
    assert [name for name in BROKER_KEYS if name.startswith(UNUSED_PREFIXES)] == [
        "group.coordinator.rebalance.protocols"
    ]
