"""The way to a coordinator, of transactions or of groups: where it is, and a connection of its own.

Its own, because answers come in order, and the end of a transaction is not to wait behind another one's records.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.errors import ClientError, check
from tidelog.errors import BrokerError, ErrorCode
from tidelog.net.address import Address
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection
    from tidelog.wire.declare import Message

M = TypeVar("M", bound="Message")

_SEVERAL_KEYS_SINCE: Final = 4
TRANSACTION_VERSION: Final = "transaction.version"


class CoordinatorOf(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Line:
    def __init__(self, cluster: Cluster, kind: CoordinatorOf, key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self.transaction_version = 0
        """Kafka's feature of that name, as the cluster had it when the line was last opened."""

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def ask(self, request: Message, response: type[M], *, limit: int | None = None) -> M:
        """One attempt. After a failure the coordinator is looked for anew."""
        connection = await self.connected()
        try:
            return await connection.send(request, response, limit=limit)
        except ClientError:
            await self.close()
            raise

    async def connected(self) -> Connection:
        async with self._opening:
            if self._connection is None or self._connection.closed:
                await self.close()
                self._connection = await self._cluster.dedicated(await self._find())
                self.transaction_version = self._connection.features.get(TRANSACTION_VERSION, 0)
            return self._connection

    async def _find(self) -> Address:
        connection = await self._cluster.any_connection()
        if connection.version_of(FindCoordinatorRequest) >= _SEVERAL_KEYS_SINCE:
            request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self._key])
        else:
            request = FindCoordinatorRequest(key_type=self._kind, key=self._key)
        reply = await connection.send(request, FindCoordinatorResponse)
        about = f"{self._kind.name.lower()} {self._key}"
        check(reply.error_code, reply.error_message, about)
        for found in reply.coordinators:
            check(found.error_code, found.error_message, about)
            return Address(found.host, found.port)
        if not reply.host:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{about}: no coordinator was named")
        return Address(reply.host, reply.port)
