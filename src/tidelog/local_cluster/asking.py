"""Asks the brokers of a cluster who they are and which of them is controller, as any client may."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.client.admin import Admin
from tidelog.client.config import ClientConfig
from tidelog.client.errors import ClientError
from tidelog.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.descriptions import ClusterDescription

_PATIENCE = ClientConfig(
    client_id="tidelog-cluster",
    request_timeout_ms=2000,
    default_api_timeout_ms=3000,
    socket_connection_setup_timeout_ms=2000,
)


def describe(addresses: Sequence[str]) -> ClusterDescription | None:
    """What one of these brokers says of the cluster; None when none of them answers."""
    if not addresses:
        return None

    async def ask() -> ClusterDescription:
        async with Admin(addresses, _PATIENCE) as admin:
            return await admin.describe_cluster()

    try:
        return asyncio.run(ask())
    except (ClientError, BrokerError, OSError):
        return None
