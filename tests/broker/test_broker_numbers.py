"""Brokers that are given no number ask for one, and keep it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tidelog.broker import coordination
from tidelog.broker.node import Node
from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.storage.errors import StoreError
from tidelog.testing.forgetful_fs import ForgetfulFilesystem
from tidelog.znodes.embedded import open_embedded

if TYPE_CHECKING:
    from tidelog.znodes.store import ZnodeStore


async def number_of(znodes: ZnodeStore, fs: ForgetfulFilesystem, **properties: str) -> int:
    """Opens a broker on a disk and stops it again."""
    given = {key.replace("_", "."): value for key, value in properties.items()}
    config = BrokerConfig.parse({"zookeeper.connect": "elsewhere:2181", "log.dirs": "/data", **given})
    with ThreadPoolExecutor(1) as executor:
        node = Node(config, SystemClock(), fs, lambda _name, _threads: executor)
        node.store.lock()
        try:
            await node.open(znodes)
            return node.broker_id
        finally:
            await node.leave()
            node.close()
            fs.locked.clear()


def test_each_new_broker_gets_the_next_number_above_the_reserved_ones_and_keeps_it() -> None:
    async def main() -> None:
        znodes = await open_embedded(None, SystemClock())
        first, second, third = (ForgetfulFilesystem(seed) for seed in range(3))
        assert await number_of(znodes, first, broker_id="-1") == 1001
        assert await number_of(znodes, second, broker_id="-1") == 1002
        assert await number_of(znodes, first, broker_id="-1") == 1001
        assert await number_of(znodes, third, broker_id="7") == 7
        assert await number_of(znodes, third, broker_id="-1") == 7, "given by hand once, known ever after"
        with pytest.raises(StoreError, match=r"broker\.id=1001"):
            await number_of(znodes, first, broker_id="5")
        await znodes.close()

    asyncio.run(main())


def test_numbers_begin_above_what_is_reserved_and_none_is_given_twice() -> None:
    async def main() -> None:
        znodes = await open_embedded(None, SystemClock())
        await coordination.prepare_tree(znodes)
        given = await asyncio.gather(*(coordination.new_broker_id(znodes, 10) for _ in range(5)))
        assert sorted(given) == [11, 12, 13, 14, 15]
        await znodes.close()

    asyncio.run(main())


def test_the_number_that_was_given_is_in_the_settings() -> None:
    config = BrokerConfig.parse({"broker.id": "-1", "zookeeper.connect": "zk:2181"}).with_id(1001)
    assert config.broker_id == 1001
    assert config.with_dynamic(default={}, broker={}).broker_id == 1001
