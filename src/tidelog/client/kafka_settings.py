"""Reads settings as other Kafka clients take them: dotted names, values that may be text."""

from __future__ import annotations

import types
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tidelog.client.kafka_security import translate_security

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.config import ClientConfig

C = TypeVar("C", bound="ClientConfig")

_TRUTH = {"true": True, "false": False}


def read_settings(kind: type[C], settings: Mapping[str, Any]) -> C:
    """ValueError names the setting that does not exist or has no sensible value."""
    hints = get_type_hints(kind)
    known = {field.name for field in fields(kind)}
    chosen: dict[str, Any] = {}
    for key, value in translate_security(settings).items():
        name = key.replace(".", "_")
        if name not in known:
            raise ValueError(f"there is no setting {key}: {kind.__name__} lists those there are")
        chosen[name] = _value(key, value, hints[name])
    return kind(**chosen)


def _value(key: str, value: Any, hint: Any) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    for option in _options(hint):
        try:
            return _parsed(value.strip(), option)
        except ValueError:
            continue
    raise ValueError(f"{key}={value} makes no sense: {_expectation(hint)} is expected")


def _options(hint: Any) -> list[Any]:
    """The types that a text may stand for, the narrowest first."""
    options = list(get_args(hint)) if get_origin(hint) in {Union, types.UnionType} else [hint]
    return sorted(options, key=lambda option: option is str)


def _parsed(text: str, option: Any) -> Any:
    if option is str:
        return text
    if option is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.lower()]
    if option in {int, float}:
        return option(text)
    if get_origin(option) is Literal:
        for choice in get_args(option):
            if str(choice) == text:
                return choice
    if get_origin(option) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    raise ValueError(text)


def _expectation(hint: Any) -> str:
    names = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            names += [str(choice) for choice in get_args(option)]
        elif option is not type(None):
            names.append({int: "a number", float: "a number", bool: "true or false"}.get(option, "text"))
    return " or ".join(names)
