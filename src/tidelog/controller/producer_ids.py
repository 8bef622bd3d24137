"""Hands out producer ids, each only once in the life of the cluster.

Ids are taken from the znode store in blocks, by compare-and-set, as Kafka does: a crash wastes the rest of a block and
never repeats an id.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId, ProducerId
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import BadVersion, NodeExists, NoNode, ZnodeError

if TYPE_CHECKING:
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
SPARE_BELOW = BLOCK_SIZE // 10
"""With fewer ids left than these, the next block is fetched."""

ATTEMPTS_MAX = 20
LAST_ID = 2**63 - 1


class ProducerIds:
    def __init__(self, znodes: ZnodeStore, broker_id: int) -> None:
        self._znodes = znodes
        self._broker_id = broker_id
        self._ids = range(0)
        """What is left of the block in use."""
        self._spare = range(0)
        """The block after it."""
        self._refill = asyncio.Lock()  # whoever finds the block empty fetches the next one for all
        self._refilling: asyncio.Task[None] | None = None

    async def take(self) -> ProducerId:
        while (taken := self._take()) is None:
            await self.stock()
        return taken

    def take_now(self) -> ProducerId | None:
        """For those who cannot wait: None if there is none at hand, which is seen to. A spare block is kept."""
        taken = self._take()
        if not self._spare and len(self._ids) < SPARE_BELOW and self._refilling is None:
            self._refilling = asyncio.get_running_loop().create_task(self._fetch_spare(), name="producer ids")
        return taken

    @property
    def stocked(self) -> bool:
        return bool(self._ids or self._spare)

    async def stock(self) -> None:
        """Sees to it that there is an id at hand. Raises BrokerError."""
        async with self._refill:
            if not self.stocked:
                self._ids = await self._claim_block()

    async def stop(self) -> None:
        refilling, self._refilling = self._refilling, None
        if refilling is not None:
            refilling.cancel()
            await asyncio.gather(refilling, return_exceptions=True)

    def _take(self) -> ProducerId | None:
        if not self._ids:
            self._ids, self._spare = self._spare, range(0)
        if not self._ids:
            return None
        taken, self._ids = self._ids[0], self._ids[1:]
        return ProducerId(taken)

    async def _fetch_spare(self) -> None:
        try:
            async with self._refill:
                if not self._spare:
                    self._spare = await self._claim_block()
        except (BrokerError, ZnodeError) as error:
            logger.warning("no further producer ids could be claimed yet: %s", error)
        finally:
            self._refilling = None

    async def _claim_block(self) -> range:
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
            return range(block.first, block.last + 1)
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "producer ids are contended: try again")
