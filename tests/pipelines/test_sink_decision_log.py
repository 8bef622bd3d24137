"""The topic of decisions: whose last one is found, and what is not taken for one."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tidelog.client.admin import Admin
from tidelog.client.config import ProducerConfig
from tidelog.client.descriptions import ConfigResource
from tidelog.client.producer import Producer
from tidelog.pipelines.sink.decision_log import PARTITIONS, TOPIC, DecisionLog
from tidelog.pipelines.sink.decisions import Decision, UnreadableDecision


def decision(query: str, batch: int = 0, **more: object) -> Decision:
    return Decision(query, "run", batch, (), adopted=True, **more)  # type: ignore[arg-type]


def query() -> str:
    return str(uuid.uuid4())


def neighbour(log: DecisionLog, of: str) -> str:
    """Another query, whose decisions are kept in the same partition."""
    while True:
        other = query()
        if log.partition(other) == log.partition(of):
            return other


async def store(producer: Producer, log: DecisionLog, name: str, value: bytes | None) -> None:
    await producer.send_and_wait(TOPIC, value, key=name.encode(), partition=log.partition(name))


def test_the_last_decision_of_a_query_is_found_behind_those_of_others(bootstrap: str) -> None:
    async def scenario() -> None:
        async with DecisionLog(ProducerConfig(bootstrap_servers=bootstrap)) as log, Producer(bootstrap) as producer:
            await log.ensure()
            mine, nobody = query(), query()
            other = neighbour(log, mine)
            for batch in range(3):
                await store(producer, log, mine, decision(mine, batch).to_json())
            for batch in range(100):
                await store(producer, log, other, decision(other, batch).to_json())
            assert await log.last(mine) == decision(mine, 2)
            assert await log.last(other) == decision(other, 99)
            assert await log.last(nobody) is None
            await store(producer, log, mine, None)
            assert await log.last(mine) is None

    asyncio.run(scenario())


def test_what_was_not_committed_is_no_decision_and_what_is_open_is_waited_for(bootstrap: str) -> None:
    async def scenario() -> None:
        async with DecisionLog(ProducerConfig(bootstrap_servers=bootstrap)) as log:
            await log.ensure()
            mine = query()
            other = neighbour(log, mine)
            async with (
                Producer(bootstrap, transactional_id=mine) as producer,
                Producer(bootstrap, transactional_id=other) as slow,
            ):
                await producer.begin()
                await store(producer, log, mine, decision(mine, 0).to_json())
                await producer.commit()
                await producer.begin()
                await store(producer, log, mine, decision(mine, 1).to_json())
                await producer.abort()
                assert await log.last(mine) == decision(mine, 0)
                await slow.begin()
                await store(slow, log, other, decision(other, 5).to_json())
                async with producer.transaction():
                    await store(producer, log, mine, decision(mine, 2).to_json())
                looking = asyncio.create_task(log.last(mine))
                await store(slow, log, other, decision(other, 6).to_json())
                assert not looking.done()
                await slow.commit()
                assert await looking == decision(mine, 2)

    asyncio.run(scenario())


def test_what_cannot_be_read_is_said_and_not_passed_over(bootstrap: str) -> None:
    async def scenario() -> None:
        async with DecisionLog(ProducerConfig(bootstrap_servers=bootstrap)) as log, Producer(bootstrap) as producer:
            await log.ensure()
            mine = query()
            await store(producer, log, mine, decision(mine).to_json())
            await store(producer, log, mine, b"something else")
            with pytest.raises(UnreadableDecision, match=f"{mine} in topic {TOPIC}"):
                await log.last(mine)
            assert await log.by_checkpoint("/nowhere", but=query()) == []

    asyncio.run(scenario())


def test_those_who_had_the_same_checkpoint_are_found(bootstrap: str) -> None:
    async def scenario() -> None:
        async with DecisionLog(ProducerConfig(bootstrap_servers=bootstrap)) as log, Producer(bootstrap) as producer:
            await log.ensure()
            queries = [query() for _ in range(6)]
            place = f"/{query()}"
            for each in queries[:-1]:
                await store(producer, log, each, decision(each, 1, checkpoint=place).to_json())
            await store(producer, log, queries[-1], decision(queries[-1], 1, checkpoint=f"{place}/other").to_json())
            await store(producer, log, queries[1], decision(queries[1], 2, checkpoint=None).to_json())
            found = await log.by_checkpoint(place, but=queries[0])
            assert {each.query for each in found} == {*queries[2:-1]}

    asyncio.run(scenario())


def test_the_topic_is_made_once_and_compacted(bootstrap: str) -> None:
    async def scenario() -> None:
        config = ProducerConfig(bootstrap_servers=bootstrap)
        async with DecisionLog(config) as one, DecisionLog(config) as other, Admin(bootstrap) as admin:
            await asyncio.gather(one.ensure(), other.ensure())
            assert len((await admin.describe_topic(TOPIC)).partitions) == PARTITIONS
            (policy,) = await admin.describe_configs(ConfigResource.of_topic(TOPIC), ["cleanup.policy"])
            assert policy.value == "compact"

    asyncio.run(scenario())
