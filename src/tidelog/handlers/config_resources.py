"""The resources that have settings, as DescribeConfigs, AlterConfigs and IncrementalAlterConfigs name them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from tidelog.config.describe import describe_broker, describe_cluster_default, describe_topic
from tidelog.controller.settings import CLUSTER_DEFAULT
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.config.alter import Alteration
    from tidelog.config.describe import ConfigEntry
    from tidelog.handlers.handler import Context


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


def describe(ctx: Context, kind: int, name: str, keys: Collection[str] | None) -> list[ConfigEntry]:
    services = ctx.services
    if kind == ResourceType.TOPIC:
        return describe_topic(services.config, services.image.topic(name).settings, keys)
    _check_broker(ctx, kind, name)
    if name == CLUSTER_DEFAULT:
        return describe_cluster_default(services.config, keys)
    return describe_broker(services.config, keys)


async def alter(
    ctx: Context, kind: int, name: str, alterations: Sequence[Alteration], *, replace: bool, validate_only: bool
) -> None:
    """Changes a resource's own settings; `replace` resets those that are not named."""
    services = ctx.services
    if kind == ResourceType.TOPIC:
        topic = services.image.topic(name)
        await services.settings.alter_topic(topic, alterations, replace=replace, validate_only=validate_only)
        return
    _check_broker(ctx, kind, name)
    await services.settings.alter_broker(name, alterations, replace=replace, validate_only=validate_only)


def _check_broker(ctx: Context, kind: int, name: str) -> None:
    if kind != ResourceType.BROKER:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"resource type {kind} has no settings here: use 2 (topic) or 4 (broker)"
        )
    if name not in {CLUSTER_DEFAULT, str(ctx.services.broker_id)}:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"ask broker {name!r} itself: this is broker {ctx.services.broker_id}"
        )
