"""A pipeline's settings for clients, shared out: each kind of client gets those that it has. Pure.

There is one list for all of them, and few settings are everybody's: a consumer knows nothing of compression, a producer
nothing of fetching. That some client has each of them was made sure of when the pipeline was defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.client.config import ClientConfig
from tidelog.pipelines.options import KAFKA_PREFIX, known_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

C = TypeVar("C", bound=ClientConfig)


def settings_for(kind: type[ClientConfig], kafka: Mapping[str, Any]) -> dict[str, Any]:
    """By Kafka's names, in whatever case they were written."""
    known = known_settings(kind)
    return {name.lower(): value for name, value in kafka.items() if name.lower() in known}


def options_for(kind: type[ClientConfig], kafka: Mapping[str, Any]) -> dict[str, str]:
    """The same, as options of a source or sink."""
    return {f"{KAFKA_PREFIX}{name}": str(value) for name, value in settings_for(kind, kafka).items()}


def client_config(kind: type[C], kafka: Mapping[str, Any]) -> C:
    return kind.from_kafka(settings_for(kind, kafka))
