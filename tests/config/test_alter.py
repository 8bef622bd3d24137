"""Changing settings at run time: what is allowed, and how lists grow and shrink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.config.alter import (
    Alteration,
    AlterOperation,
    altered,
    validate_broker_overrides,
    validate_topic_overrides,
)
from tidelog.config.keys import TOPIC_KEYS
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from tidelog.config.definition import Value

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def default_of(name: str) -> Value:
    return TOPIC_KEYS[name].default


def alter(current: dict[str, str], *alterations: tuple[str, int, str | None]) -> dict[str, str]:
    return altered(TOPIC_KEYS, current, [Alteration(*alteration) for alteration in alterations], default_of)


@pytest.mark.parametrize(
    ("current", "alteration", "after"),
    [
        ({}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4", "segment.ms": "1"}, ("retention.ms", DELETE, None), {"segment.ms": "1"}),
        ({}, ("retention.ms", DELETE, None), {}),
        ({}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact,delete"}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
    ],
)
def test_operations(current: dict[str, str], alteration: tuple[str, int, str | None], after: dict[str, str]) -> None:
    before = dict(current)
    assert alter(current, alteration) == after
    assert current == before


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_operations(alterations: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refusal:
        alter({}, *alterations)
    assert refusal.value.code is code


def test_valid_topic_overrides_pass() -> None:
    validate_topic_overrides({"retention.ms": "-1", "cleanup.policy": "compact", "segment.bytes": "1048576"})
    validate_topic_overrides({})


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"retention.ms": "-2"}, "Invalid value '-2' for configuration retention.ms: must be at least -1."),
        ({"retention.m": "5"}, "Unknown topic configuration retention.m. Did you mean retention.ms?"),
        ({"retention.ms": None}, "No value is given for topic configuration retention.ms."),
        ({"segment.bytes": "100"}, "must be at least 1048576"),
        ({"cleanup.policy": "shred"}, "must be one or more of compact, delete"),
        ({"compression.gzip.level": "0"}, "must be -1, or between 1 and 9"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "must not be greater than"),
        ({"num.partitions": "3"}, "Unknown topic configuration num.partitions."),
    ],
)
def test_refused_topic_overrides(overrides: dict[str, str | None], said: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        validate_topic_overrides(overrides)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert said in refusal.value.message


def test_every_bad_topic_override_is_named() -> None:
    with pytest.raises(BrokerError) as refusal:
        validate_topic_overrides({"retention.ms": "x", "segment.ms": "0"})
    assert "retention.ms" in refusal.value.message
    assert "segment.ms" in refusal.value.message


def test_valid_broker_overrides_pass() -> None:
    validate_broker_overrides({"message.max.bytes": "5", "log.retention.ms": "1"}, per_broker=False)
    validate_broker_overrides({"listener.name.internal.ssl.keystore.location": "/k.pem"}, per_broker=True)


@pytest.mark.parametrize(
    ("changes", "per_broker", "said"),
    [
        ({"zookeeper.connect": "zk"}, True, "cannot be changed while the broker runs"),
        ({"ssl.keystore.location": "/k"}, False, "can only be set for one broker"),
        ({"message.max.bytes": "-1"}, False, "must be at least 0"),
        ({"message.max.byte": "1"}, False, "Did you mean message.max.bytes?"),
    ],
)
def test_refused_broker_overrides(changes: dict[str, str], per_broker: bool, said: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        validate_broker_overrides(changes, per_broker=per_broker)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert said in refusal.value.message
