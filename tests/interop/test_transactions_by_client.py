"""Every library's transactions: what is committed is read, what is aborted is not, and who was replaced is fenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from confluent_driver import assigned_consumer
from confluent_kafka import KafkaException, Producer
from topics import make_topic
from transactional_writers import WAIT_S, WRITERS, Planned, TransactionalWriter

from tidelog.client import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())

PARTITIONS = 2


def read(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes]:
    """All values from the start to where a reader of this isolation comes to an end."""
    settings = {"isolation.level": isolation, "enable.partition.eof": "true"}
    values: list[bytes] = []
    with assigned_consumer(bootstrap, topic, 0, settings, partition=partition) as consumer:
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, "neither a record nor the end came"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return values
            value = message.value()
            assert value is not None
            values.append(value)


def read_with_tidelog(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes]:
    """The same with Tidelog's own consumer."""
    place = TopicPartition(topic, partition)

    async def scenario() -> list[bytes]:
        level = "read_committed" if isolation == "read_committed" else "read_uncommitted"
        async with Consumer(bootstrap, isolation_level=level) as consumer:  # type: ignore[arg-type]
            (end,) = (await consumer.end_offsets([place])).values()
            await consumer.assign({place: 0})
            values: list[bytes] = []
            while consumer.position(place) < end:
                values += [record.value or b"" for record in await consumer.poll(WAIT_S)]
            return values

    return asyncio.run(scenario())


def settle(bootstrap: str, transactional_id: str) -> None:
    """A producer is told of its commit before all markers are written: whoever takes its id over waits for them."""
    Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id}).init_transactions(WAIT_S)


def committed(planned: Sequence[Planned], partition: int) -> list[bytes]:
    return [value for each in planned if each.commit for value in each.values.get(partition, ())]


@every_writer
def test_only_committed_transactions_are_read(write: TransactionalWriter, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    planned = [
        Planned({0: [b"a0", b"a1"], 1: [b"a2"]}, commit=True),
        Planned({0: [b"b0"], 1: [b"b1", b"b2"]}, commit=False),
        Planned({1: [b"c0"]}, commit=True),
        Planned({0: [b"d0"]}, commit=False),
        Planned({0: [b"e0"], 1: [b"e1"]}, commit=True),
    ]
    write(bootstrap, f"writer of {topic}", topic, planned)
    settle(bootstrap, f"writer of {topic}")
    for partition in range(PARTITIONS):
        everything = [value for each in planned for value in each.values.get(partition, ())]
        for reader in (read, read_with_tidelog):
            assert reader(bootstrap, topic, partition, "read_committed") == committed(planned, partition)
            assert reader(bootstrap, topic, partition, "read_uncommitted") == everything


@every_writer
def test_an_open_transaction_ends_when_its_id_is_taken_over(
    write: TransactionalWriter, bootstrap: str, topic: str
) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    name = f"writer of {topic}"
    zombie = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    zombie.init_transactions(WAIT_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"never to be seen", partition=0)
    assert zombie.flush(WAIT_S) == 0
    planned = [Planned({0: [b"mine"]}, commit=True)]
    write(bootstrap, name, topic, planned)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(WAIT_S)
    assert fenced.value.args[0].fatal()
    settle(bootstrap, name)
    assert read(bootstrap, topic, 0, "read_committed") == [b"mine"]


def test_readers_of_what_is_committed_wait_for_the_end(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer of {topic}", "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"not yet", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert read(bootstrap, topic, 0, "read_committed") == []
    assert read(bootstrap, topic, 0, "read_uncommitted") == [b"not yet"]
    with assigned_consumer(bootstrap, topic, 0, {"isolation.level": "read_committed"}) as consumer:
        producer.commit_transaction(WAIT_S)
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"not yet"


def test_many_producers_at_once(bootstrap: str, topic: str) -> None:
    """Each has an id of its own; their transactions overlap in the same partitions."""
    make_topic(bootstrap, topic, PARTITIONS)
    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer {n} of {topic}", "linger.ms": 0})
        for n in range(5)
    ]
    for producer in producers:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    for number, producer in enumerate(producers):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(WAIT_S) == 0
    for number, producer in reversed(list(enumerate(producers))):
        if number % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
    for number in range(len(producers)):
        settle(bootstrap, f"writer {number} of {topic}")
    for partition in range(PARTITIONS):
        assert read(bootstrap, topic, partition, "read_committed") == [b"0", b"2", b"4"]
