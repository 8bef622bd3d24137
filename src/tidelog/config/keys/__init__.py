"""Every configuration key, one table for brokers and one for topics. The rest of the room only reads them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog.config.keys.cluster import CONTROLLER_KEYS, IDENTITY_KEYS, QUOTA_KEYS, REPLICATION_KEYS
from tidelog.config.keys.coordinators import GROUP_KEYS, OFFSETS_KEYS, TRANSACTION_KEYS
from tidelog.config.keys.log import LOG_KEYS
from tidelog.config.keys.network import NETWORK_KEYS
from tidelog.config.keys.security import SECURITY_KEYS
from tidelog.config.keys.topic import TOPIC_KEYS as _TOPIC_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.definition import Definition

__all__ = ["BROKER_KEYS", "TOPIC_KEYS"]

BROKER_KEYS: Mapping[str, Definition] = MappingProxyType(
    {
        definition.name: definition
        for group in (
            IDENTITY_KEYS,
            NETWORK_KEYS,
            SECURITY_KEYS,
            LOG_KEYS,
            REPLICATION_KEYS,
            CONTROLLER_KEYS,
            OFFSETS_KEYS,
            GROUP_KEYS,
            TRANSACTION_KEYS,
            QUOTA_KEYS,
        )
        for definition in group
    }
)

TOPIC_KEYS: Mapping[str, Definition] = MappingProxyType({definition.name: definition for definition in _TOPIC_KEYS})
