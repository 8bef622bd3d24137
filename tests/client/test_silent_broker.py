"""The way to the broker falls silent under producers, groups and transactions: nothing is lost, nothing is repeated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from committed_reader import committed_values
from delivery_loops import PATIENT, Copy, Load, Reader, everything
from silent_proxy import Silence, SilentProxy

from tidelog.client import Admin, Consumer, Producer, TimedOut, TopicPartition
from tidelog.client.transactions import line
from tidelog.local_cluster.ports import HOST, scattered_ports

if TYPE_CHECKING:
    from tidelog.testing import StartBroker

PARTITIONS = 3
QUICK: dict[str, Any] = {**PATIENT, "request_timeout_ms": 1000, "reconnect_backoff_ms": 20}
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}


async def broker_behind(proxy: SilentProxy, fresh_broker: StartBroker, *topics: str) -> None:
    (port,) = scattered_ports(1)
    listeners = {"listeners": f"PLAINTEXT://{HOST}:{port}", "advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}
    await asyncio.to_thread(fresh_broker, {**SETTINGS, **listeners})
    proxy.lead_to(port)
    async with Admin(proxy.bootstrap) as admin:
        for topic in topics:
            await admin.create_topic(topic, partitions=PARTITIONS)


@pytest.mark.parametrize(
    ("silence", "rules"),
    [(Silence.BOTH, "newer"), (Silence.REQUESTS, "newer"), (Silence.ANSWERS, "newer"), (Silence.ANSWERS, "older")],
)
def test_clients_give_up_silent_connections_and_go_on_with_others(
    fresh_broker: StartBroker, topic: str, silence: Silence, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rules == "older":
        monkeypatch.setattr(line, "TRANSACTION_VERSION", "a feature that no broker has")
    target = f"{topic}-out"

    async def scenario() -> None:
        async with SilentProxy() as proxy:
            await broker_behind(proxy, fresh_broker, topic, target)
            load = Load(proxy.bootstrap, topic, PARTITIONS, QUICK)
            reader = Reader(proxy.bootstrap, topic, "readers", PARTITIONS, QUICK)
            copy = Copy(proxy.bootstrap, topic, target, "copy", 500, QUICK)
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(load.run())
                reading = tasks.create_task(reader.run())
                copying = tasks.create_task(copy.run(1 << 62))
                for _ in range(2):
                    await load.wait_for_more(300)
                    await copy.wait_for(copy.committed + 100)
                    await reader.wait_for_commits(2)
                    proxy.fall(silence)
                    await proxy.tried_again(3)
                    proxy.fall(Silence.NONE)
                await load.wait_for_more(300)
                load.stop()
                await sending
                stored = await everything(proxy.bootstrap, topic, PARTITIONS, committed_only=False)
                await reader.wait_for([{int(value) for _, value in partition} for partition in stored])
                await copy.wait_for(sum(map(len, stored)))
                reading.cancel()
                copying.cancel()
            load.judge(stored)
            expected = [value for partition in stored for _, value in partition]
            assert await asyncio.to_thread(committed_values, proxy.bootstrap, target, PARTITIONS) == expected

    asyncio.run(scenario())


def test_every_call_ends_when_its_time_is_up(fresh_broker: StartBroker, topic: str) -> None:
    async def scenario() -> None:
        async with SilentProxy() as proxy:
            await broker_behind(proxy, fresh_broker, topic)
            quick: dict[str, Any] = {"request_timeout_ms": 200, "default_api_timeout_ms": 600}
            async with (
                Admin(proxy.bootstrap, **quick) as admin,
                Consumer(proxy.bootstrap, group_id="mine", **quick) as consumer,
                Producer(proxy.bootstrap, delivery_timeout_ms=600, linger_ms=0, **quick) as producer,
            ):
                place = (await producer.send_and_wait(topic, b"before")).partition
                proxy.fall(Silence.BOTH)
                delivery = await producer.send(topic, b"meanwhile", partition=place)
                with pytest.raises(TimedOut, match="delivery_timeout_ms"):
                    await delivery
                with pytest.raises(TimedOut):
                    await admin.describe_topic(topic)
                with pytest.raises(TimedOut):
                    await consumer.committed([TopicPartition(topic, place)])
                with pytest.raises(TimedOut):
                    await consumer.end_offsets([TopicPartition(topic, place)])
                proxy.fall(Silence.NONE)
                assert (await producer.send_and_wait(topic, b"after", partition=place)).partition == place

    asyncio.run(scenario())


def test_a_call_s_time_is_up_before_that_of_its_request(fresh_broker: StartBroker, topic: str) -> None:
    async def scenario() -> None:
        async with SilentProxy() as proxy:
            await broker_behind(proxy, fresh_broker, topic)
            async with Admin(proxy.bootstrap, request_timeout_ms=3_600_000, default_api_timeout_ms=200) as admin:
                proxy.fall(Silence.BOTH)
                with pytest.raises(TimedOut, match="since nobody answered"):
                    await admin.describe_topic(topic)

    asyncio.run(scenario())


def test_a_silent_connection_is_given_up_although_nobody_waits_long_enough(
    fresh_broker: StartBroker, topic: str
) -> None:
    async def scenario() -> None:
        async with SilentProxy() as proxy:
            await broker_behind(proxy, fresh_broker, topic)
            async with Admin(proxy.bootstrap, request_timeout_ms=1000, default_api_timeout_ms=300) as admin:
                await admin.describe_topic(topic)
                proxy.fall(Silence.BOTH)
                with pytest.raises(TimedOut):
                    await admin.describe_topic(topic)
                proxy.fall(Silence.NONE)
                while True:
                    try:
                        await admin.describe_topic(topic)
                        break
                    except TimedOut:
                        continue

    asyncio.run(scenario())
