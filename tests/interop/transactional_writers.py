"""Producers of several libraries that write transactions, each with as little around it as it needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Producer
from kafka import KafkaProducer  # type: ignore[import-untyped]

from tidelog.client import Producer as TidelogProducer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WAIT_S = 60


class Planned(NamedTuple):
    """One transaction: values by partition, and how it is to end."""

    values: Mapping[int, Sequence[bytes]]
    commit: bool


class TransactionalWriter(Protocol):
    def __call__(self, bootstrap: str, transactional_id: str, topic: str, planned: Sequence[Planned]) -> None:
        """Writes all transactions, one after another. Everything of one is acknowledged before it ends."""


def write_with_confluent(bootstrap: str, transactional_id: str, topic: str, planned: Sequence[Planned]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    for transaction in planned:
        producer.begin_transaction()
        for partition, values in transaction.values.items():
            for value in values:
                producer.produce(topic, value, partition=partition)
        assert producer.flush(WAIT_S) == 0
        if transaction.commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)


def write_with_aiokafka(bootstrap: str, transactional_id: str, topic: str, planned: Sequence[Planned]) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        try:
            for transaction in planned:
                await producer.begin_transaction()
                for partition, values in transaction.values.items():
                    for value in values:
                        await producer.send_and_wait(topic, value, partition=partition)
                if transaction.commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(write())


def write_with_kafka_python(bootstrap: str, transactional_id: str, topic: str, planned: Sequence[Planned]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    try:
        producer.init_transactions()
        for transaction in planned:
            producer.begin_transaction()
            for partition, values in transaction.values.items():
                for value in values:
                    producer.send(topic, value, partition=partition).get(timeout=WAIT_S)
            if transaction.commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close()


def write_with_tidelog(bootstrap: str, transactional_id: str, topic: str, planned: Sequence[Planned]) -> None:
    async def write() -> None:
        async with TidelogProducer(bootstrap, transactional_id=transactional_id) as producer:
            for transaction in planned:
                await producer.begin()
                for partition, values in transaction.values.items():
                    for value in values:
                        await producer.send(topic, value, partition=partition)
                await producer.flush()
                await (producer.commit() if transaction.commit else producer.abort())

    asyncio.run(write())


WRITERS: dict[str, TransactionalWriter] = {
    "confluent-kafka": write_with_confluent,
    "aiokafka": write_with_aiokafka,
    "kafka-python": write_with_kafka_python,
    "tidelog": write_with_tidelog,
}
