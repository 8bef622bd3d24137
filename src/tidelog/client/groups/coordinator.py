"""Where a group's coordinator is, and the connections to it.

It has two, apart from those for fetching: the answer to a join may take minutes, and answers come in order, so that
commits must not stand behind it.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.errors import ConnectionLost, check
from tidelog.errors import BrokerError, ErrorCode
from tidelog.net.address import Address
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection
    from tidelog.wire.declare import Message

M = TypeVar("M", bound="Message")

_SEVERAL_KEYS_SINCE: Final = 4

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Line(Enum):
    MEMBERSHIP = "joining and heartbeats"
    POSITIONS = "commits"


class Coordinator:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._address: Address | None = None
        self._lines: dict[Line, Connection] = {}
        self._opening = {line: asyncio.Lock() for line in Line}

    async def close(self) -> None:
        lines = list(self._lines.values())
        self._lines.clear()
        for connection in lines:
            await connection.close()

    async def hang_up(self, line: Line) -> None:
        """Whatever is being asked there fails."""
        connection = self._lines.pop(line, None)
        if connection is not None:
            await connection.close()

    async def version_of(self, line: Line, request: type[Message], limit: int | None = None) -> int:
        return (await self._connected(line)).version_of(request, limit)

    async def ask(
        self,
        line: Line,
        request: Message,
        response: type[M],
        *,
        limit: int | None = None,
        timeout_ms: int | None = None,
    ) -> M:
        """One attempt. After any failure the coordinator is looked for anew."""
        try:
            connection = await self._connected(line)
            return await connection.send(request, response, limit=limit, timeout_ms=timeout_ms)
        except ConnectionLost:
            await self.moved(line)
            raise

    async def moved(self, line: Line) -> None:
        """It is not where it was, or cannot be reached there."""
        self._address = None
        await self.hang_up(line)

    async def _connected(self, line: Line) -> Connection:
        async with self._opening[line]:
            address = self._address or await self._find()
            connection = self._lines.get(line)
            if connection is not None and not connection.closed and address == self._address:
                return connection
            await self.hang_up(line)
            self._address = address
            self._lines[line] = opened = await self._cluster.dedicated(address)
            return opened

    async def _find(self) -> Address:
        connection = await self._cluster.any_connection()
        if connection.version_of(FindCoordinatorRequest) >= _SEVERAL_KEYS_SINCE:
            request = FindCoordinatorRequest(coordinator_keys=[self._group_id])
        else:
            request = FindCoordinatorRequest(key=self._group_id)
        reply = await connection.send(request, FindCoordinatorResponse)
        about = f"group {self._group_id}"
        check(reply.error_code, reply.error_message, about)
        for found in reply.coordinators:
            check(found.error_code, found.error_message, about)
            return Address(found.host, found.port)
        if not reply.host:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{about}: no coordinator was named")
        return Address(reply.host, reply.port)
