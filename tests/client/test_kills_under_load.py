"""Brokers are killed while our clients work: nothing acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from committed_reader import committed_values
from delivery_loops import Copy, Load, everything

from tidelog.client import Admin, Producer
from tidelog.client.transactions import line

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess, StartBroker

PARTITIONS = 3
KILLS = 3


async def kill_and_start(broker: BrokerProcess) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)


def test_what_was_acknowledged_is_there_once_and_in_order(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker()

    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(topic, partitions=PARTITIONS)
        load = Load(broker.bootstrap, topic, PARTITIONS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            for _ in range(KILLS):
                await load.wait_for_more(1000)
                await kill_and_start(broker)
            await load.wait_for_more(1000)
            load.stop()
        found = await everything(broker.bootstrap, topic, PARTITIONS, committed_only=False)
        load.judge(found)

    asyncio.run(scenario())


@pytest.mark.parametrize("rules", ["newer", "older"])
def test_a_copy_in_transactions_neither_loses_nor_repeats(
    fresh_broker: StartBroker, topic: str, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rules == "older":
        monkeypatch.setattr(line, "TRANSACTION_VERSION", "a feature that no broker has")
    broker = fresh_broker({"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"})
    source, count = f"{topic}-in", 6000

    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(source, partitions=PARTITIONS)
            await admin.create_topic(topic, partitions=PARTITIONS)
        async with Producer(broker.bootstrap) as producer:
            for number in range(count):
                await producer.send(source, b"%d" % number, partition=number % PARTITIONS)
        copy = Copy(broker.bootstrap, source, topic, f"copy-{topic}")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy.run(count))
            for kill in range(KILLS):
                await copy.wait_for((kill + 1) * count // (KILLS + 2))
                await kill_and_start(broker)

    asyncio.run(scenario())
    expected = [b"%d" % number for first in range(PARTITIONS) for number in range(first, count, PARTITIONS)]
    assert committed_values(broker.bootstrap, topic, PARTITIONS) == expected
