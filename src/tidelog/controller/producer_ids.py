"""Hands out producer ids, each only once in the life of the cluster.

Ids are taken from the znode store in blocks, by compare-and-set, as Kafka does: a crash wastes the rest of a block and
never repeats an id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId, ProducerId
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import BadVersion, NodeExists, NoNode

if TYPE_CHECKING:
    from tidelog.znodes.store import ZnodeStore

BLOCK_SIZE = 1000
ATTEMPTS_MAX = 20
LAST_ID = 2**63 - 1


class ProducerIds:
    def __init__(self, znodes: ZnodeStore, broker_id: int) -> None:
        self._znodes = znodes
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()  # whoever finds the block empty fetches the next one for all

    async def take(self) -> ProducerId:
        while self._next >= self._end:
            async with self._refill:
                if self._next >= self._end:
                    await self._claim_block()
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    async def _claim_block(self) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                data, stat = await self._znodes.get(paths.PRODUCER_ID_BLOCK)
            except NoNode:
                first, version = 0, -1
            else:
                first, version = nodes.ProducerIdBlock.decode(paths.PRODUCER_ID_BLOCK, data).last + 1, stat.version
            if first > LAST_ID - BLOCK_SIZE:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
            block = nodes.ProducerIdBlock(BrokerId(self._broker_id), first, first + BLOCK_SIZE - 1)
            try:
                if version < 0:
                    await self._znodes.create(paths.PRODUCER_ID_BLOCK, block.encode())
                else:
                    await self._znodes.set(paths.PRODUCER_ID_BLOCK, block.encode(), version)
            except (BadVersion, NodeExists):
                continue  # another broker was faster
            self._next, self._end = block.first, block.last + 1
            return
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "producer ids are contended: try again")
