"""Producer ids are given out once in the life of a cluster, and are at hand before anybody has to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.clock import SystemClock
from tidelog.controller.producer_ids import BLOCK_SIZE, SPARE_BELOW, ProducerIds
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.znodes.store import ZnodeStore


def with_store(check: Callable[[ZnodeStore], Awaitable[None]]) -> None:
    async def main() -> None:
        znodes = await open_embedded(None, SystemClock())
        try:
            await check(znodes)
        finally:
            await znodes.close()

    asyncio.run(main())


async def settle(ids: ProducerIds) -> None:
    """Lets a refill that is under way come to its end."""
    while any(task.get_name() == "producer ids" for task in asyncio.all_tasks()):
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "producer ids"))
    assert ids.stocked


def test_brokers_that_take_at_once_never_get_the_same() -> None:
    async def check(znodes: ZnodeStore) -> None:
        brokers = [ProducerIds(znodes, number) for number in range(3)]
        taken = await asyncio.gather(*(ids.take() for ids in brokers for _ in range(BLOCK_SIZE + 100)))
        assert len(set(taken)) == len(taken)

    with_store(check)


def test_a_later_life_of_a_broker_begins_another_block() -> None:
    async def check(znodes: ZnodeStore) -> None:
        assert await ProducerIds(znodes, 1).take() == 0
        assert await ProducerIds(znodes, 1).take() == BLOCK_SIZE
        data, _stat = await znodes.get(paths.PRODUCER_ID_BLOCK)
        assert nodes.ProducerIdBlock.decode(paths.PRODUCER_ID_BLOCK, data).last == 2 * BLOCK_SIZE - 1

    with_store(check)


def test_who_cannot_wait_is_given_one_as_soon_as_there_is_one() -> None:
    async def check(znodes: ZnodeStore) -> None:
        ids = ProducerIds(znodes, 1)
        assert ids.take_now() is None
        assert not ids.stocked
        await settle(ids)
        assert ids.take_now() == 0

    with_store(check)


def test_the_next_block_is_there_before_the_last_one_is_used_up() -> None:
    async def check(znodes: ZnodeStore) -> None:
        ids = ProducerIds(znodes, 1)
        await ids.stock()
        for expected in range(3 * BLOCK_SIZE):
            assert ids.take_now() == expected
            if (expected + 1) % BLOCK_SIZE == BLOCK_SIZE - SPARE_BELOW + 1:
                await settle(ids)

    with_store(check)


def test_stocking_twice_takes_one_block() -> None:
    async def check(znodes: ZnodeStore) -> None:
        ids = ProducerIds(znodes, 1)
        await asyncio.gather(ids.stock(), ids.stock())
        assert await ProducerIds(znodes, 2).take() == BLOCK_SIZE

    with_store(check)


def test_when_all_ids_are_given_out_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def check(znodes: ZnodeStore) -> None:
        block = nodes.ProducerIdBlock(BrokerId(1), 2**63 - BLOCK_SIZE, 2**63 - 1)
        await znodes.create(paths.PRODUCER_ID_BLOCK, block.encode())
        ids = ProducerIds(znodes, 1)
        with pytest.raises(BrokerError) as refused:
            await ids.take()
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert ids.take_now() is None
        await ids.stop()
        assert ids.take_now() is None
        (refill,) = [task for task in asyncio.all_tasks() if task.get_name() == "producer ids"]
        await refill
        assert "no further producer ids" in caplog.text

    with_store(check)
