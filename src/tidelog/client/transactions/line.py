"""The way to a coordinator, of transactions or of groups: where it is, and a connection of its own.

Its own, because answers come in order, and the end of a transaction is not to wait behind another one's records. Those
who only end what others wrote share the client's connections, and keep a list of who coordinates what.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.errors import ClientError, check
from tidelog.errors import BrokerError, ErrorCode
from tidelog.net.address import Address
from tidelog.types import BrokerId
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.backoff import Deadline
    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection
    from tidelog.wire.declare import Message

M = TypeVar("M", bound="Message")

_SEVERAL_KEYS_SINCE: Final = 4
_KEYS_AT_ONCE_MAX: Final = 1000
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


class SharedLine(Line):
    """Over the client's own connections; `coordinators` is shared as well."""

    def __init__(self, cluster: Cluster, kind: CoordinatorOf, key: str, coordinators: dict[str, BrokerId]) -> None:
        super().__init__(cluster, kind, key)
        self._coordinators = coordinators

    async def close(self) -> None:
        """The connection is not its own; but whoever answered, or did not, is not asked again unless named again."""
        self._coordinators.pop(self._key, None)

    async def connected(self) -> Connection:
        broker = self._coordinators.get(self._key)
        if broker is None:
            found = await _ask_for_coordinators(self._cluster, self._kind, [self._key])
            broker = self._coordinators[self._key] = found[self._key]
            if broker not in self._cluster.metadata.nodes:
                await self._cluster.refresh(())
        try:
            connection = await self._cluster.connection(broker)
        except ClientError:
            await self.close()
            raise
        self.transaction_version = connection.features.get(TRANSACTION_VERSION, 0)
        return connection


async def find_coordinators(
    cluster: Cluster, kind: CoordinatorOf, keys: Sequence[str], deadline: Deadline
) -> dict[str, BrokerId]:
    """Of all keys, asked for together where the broker can answer that."""

    async def attempt() -> dict[str, BrokerId]:
        found: dict[str, BrokerId] = {}
        for start in range(0, len(keys), _KEYS_AT_ONCE_MAX):
            found |= await _ask_for_coordinators(cluster, kind, keys[start : start + _KEYS_AT_ONCE_MAX])
        return found

    return await cluster.retrying("finding coordinators", attempt, deadline)


async def _ask_for_coordinators(cluster: Cluster, kind: CoordinatorOf, keys: Sequence[str]) -> dict[str, BrokerId]:
    connection = await cluster.any_connection()
    found: dict[str, BrokerId] = {}
    if connection.version_of(FindCoordinatorRequest) >= _SEVERAL_KEYS_SINCE:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
        for each in (await connection.send(request, FindCoordinatorResponse)).coordinators:
            check(each.error_code, each.error_message, f"{kind.name.lower()} {each.key}")
            found[each.key] = BrokerId(each.node_id)
    else:
        for key in keys:
            reply = await connection.send(FindCoordinatorRequest(key_type=kind, key=key), FindCoordinatorResponse)
            check(reply.error_code, reply.error_message, f"{kind.name.lower()} {key}")
            found[key] = BrokerId(reply.node_id)
    missing = [key for key in keys if key not in found]
    if missing:
        about = f"{kind.name.lower()} {missing[0]}"
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{about}: no coordinator was named")
    return found
