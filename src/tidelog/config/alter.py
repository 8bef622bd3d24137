"""Changing settings while the broker runs: what AlterConfigs and IncrementalAlterConfigs may do. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.definition import ConfigType, Update, close_matches, format_value
from tidelog.config.keys import BROKER_KEYS, TOPIC_KEYS
from tidelog.config.layers import split_listener_key
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.config.definition import Definition, Value


class AlterOperation(IntEnum):
    """Numbers as IncrementalAlterConfigs has them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: int
    value: str | None


def altered(
    definitions: Mapping[str, Definition],
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    effective: Callable[[str], Value],
) -> dict[str, str]:
    """The resource's own settings after `alterations`, all of them or none: it raises before anything is changed.

    `effective` gives the value in force of a key that the resource does not set itself, which is what APPEND and
    SUBTRACT start from. Whether the result is valid is for the resource's own validation to say.
    """
    names = [alteration.name for alteration in alterations]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"One request alters these keys twice: {', '.join(repeated)}.")
    result = dict(current)
    for name, operation, text in alterations:
        if operation == AlterOperation.DELETE:
            result.pop(name, None)
        elif text is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"No value is given for {name}. To unset it, delete it.")
        elif operation == AlterOperation.SET:
            result[name] = text
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            before = _list_of(definitions, name, current, effective)
            result[name] = ",".join(_edited(before, text, append=operation == AlterOperation.APPEND))
        else:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Operation {operation} on {name} is unknown: it must be 0 (set), 1 (delete), 2 (append) or "
                "3 (subtract).",
            )
    return result


def _list_of(
    definitions: Mapping[str, Definition], name: str, current: Mapping[str, str], effective: Callable[[str], Value]
) -> list[str]:
    definition = definitions.get(name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"{name} is not a list, so nothing can be added to it or taken off."
        )
    text = current[name] if name in current else format_value(effective(name))
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def _edited(before: list[str], text: str, *, append: bool) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if append:
        return before + [part for part in dict.fromkeys(parts) if part not in before]
    return [part for part in before if part not in parts]


def validate_broker_overrides(changes: Mapping[str, str], *, per_broker: bool) -> None:
    """Whether `changes` may be set while brokers run, on one of them (`per_broker`) or on all.

    Raises BrokerError(INVALID_REQUEST), which is what Kafka answers for brokers (for topics it is INVALID_CONFIG).
    """
    problems = []
    for name, text in changes.items():
        listener_key = split_listener_key(name)
        definition = BROKER_KEYS.get(listener_key[1] if listener_key else name)
        if definition is None:
            problems.append(f"Unknown broker configuration {name}.{close_matches(name, list(BROKER_KEYS))}")
        elif definition.update is Update.READ_ONLY:
            problems.append(f"{name} cannot be changed while the broker runs: set it in its file and restart.")
        elif definition.update is Update.PER_BROKER and not per_broker:
            problems.append(f"{name} can only be set for one broker: name the broker as the resource.")
        else:
            try:
                definition.parse(text)
            except ValueError as error:
                problems.append(str(error))
    if problems:
        raise BrokerError(ErrorCode.INVALID_REQUEST, " ".join(problems))


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Whether `overrides` may be a topic's own settings. Raises BrokerError(INVALID_CONFIG) with every problem."""
    problems = []
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        definition = TOPIC_KEYS.get(name)
        if definition is None:
            problems.append(f"Unknown topic configuration {name}.{close_matches(name, list(TOPIC_KEYS))}")
        elif text is None:
            problems.append(f"No value is given for topic configuration {name}.")
        else:
            try:
                values[name] = definition.parse(text)
            except ValueError as error:
                problems.append(str(error))
    youngest, oldest = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(youngest, int) and isinstance(oldest, int) and youngest > oldest:
        problems.append(f"min.compaction.lag.ms={youngest} must not be greater than max.compaction.lag.ms={oldest}.")
    if problems:
        raise BrokerError(ErrorCode.INVALID_CONFIG, " ".join(problems))
