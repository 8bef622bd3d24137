"""One set of `kafka.*` options for the several clients that a sink needs."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from tidelog.client.config import ClientConfig, ConsumerConfig

if TYPE_CHECKING:
    from tidelog.client.config import ProducerConfig

C = TypeVar("C", bound=ClientConfig)


def as_client(config: ProducerConfig, kind: type[C], **more: object) -> C:
    """What every client has in common, for another kind of client."""
    common = {field.name: getattr(config, field.name) for field in fields(ClientConfig)}
    return kind(**common, **more)  # type: ignore[arg-type]


def as_consumer(config: ProducerConfig) -> ConsumerConfig:
    return as_client(
        config,
        ConsumerConfig,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        fetch_max_wait_ms=50,
    )
