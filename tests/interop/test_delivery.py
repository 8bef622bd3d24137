"""Every client with every kind of acknowledgement, with idempotence, over several partitions, and in its own time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from all_clients import CLIENTS, every_client, every_library
from client_drivers import ClientDriver, Sent, Writing
from confluent_driver import ConfluentDriver, assigned_consumer
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Producer
from kcat_driver import KcatDriver
from topics import make_topic

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import Message

    from tidelog.testing import StartBroker

READER = ConfluentDriver()


@every_client
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(client: ClientDriver, acks: str, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    records = [Sent(b"%d" % number, b"k") for number in range(100)]
    client.write(bootstrap, topic, records, Writing(acks=acks))
    got = READER.read(bootstrap, topic, 100)
    assert [record.value for record in got] == [record.value for record in records]


@every_client
def test_idempotent_producers(client: ClientDriver, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    records = [Sent(b"%d" % number, b"k") for number in range(1000)]
    client.write(bootstrap, topic, records, Writing(idempotent=True))
    got = READER.read(bootstrap, topic, 1000)
    assert [(record.offset, record.value) for record in got] == [(number, b"%d" % number) for number in range(1000)]


@every_client
def test_each_partition_is_a_log_of_its_own(client: ClientDriver, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, partitions=3)
    for partition in range(3):
        client.write(bootstrap, topic, [Sent(b"in %d" % partition, b"k")], Writing(partition=partition))
    for partition in range(3):
        (record,) = client.read(bootstrap, topic, 1, partition=partition)
        assert (record.offset, record.value) == (0, b"in %d" % partition)


@every_client
def test_a_topic_is_created_by_its_first_writer(client: ClientDriver, bootstrap: str, topic: str) -> None:
    client.write(bootstrap, topic, [Sent(b"first", b"k")])
    (record,) = READER.read(bootstrap, topic, 1)
    assert record.value == b"first"


@every_client
def test_the_producer_s_time_is_kept_by_default(client: ClientDriver, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    before = SystemClock().now_ms()
    client.write(bootstrap, topic, [Sent(b"now", b"k")])
    after = SystemClock().now_ms()
    for reader in CLIENTS:
        (record,) = reader.read(bootstrap, topic, 1)
        assert before <= record.timestamp_ms <= after
    assert timestamp_type(bootstrap, topic) == TIMESTAMP_CREATE_TIME


@every_client
def test_the_broker_s_time_replaces_it_where_the_topic_says_so(
    client: ClientDriver, bootstrap: str, topic: str
) -> None:
    make_topic(bootstrap, topic, configs={"message.timestamp.type": "LogAppendTime"})
    before = SystemClock().now_ms()
    long_ago = None if isinstance(client, KcatDriver) else 1_000_000_000_000
    client.write(bootstrap, topic, [Sent(b"old", b"k", timestamp_ms=long_ago)])
    after = SystemClock().now_ms()
    for reader in CLIENTS:
        (record,) = reader.read(bootstrap, topic, 1)
        assert before <= record.timestamp_ms <= after
    assert timestamp_type(bootstrap, topic) == TIMESTAMP_LOG_APPEND_TIME


def timestamp_type(bootstrap: str, topic: str) -> int:
    with assigned_consumer(bootstrap, topic) as consumer:
        message = consumer.poll(30)
    assert message is not None
    return message.timestamp()[0]


def test_a_record_over_the_limit_is_refused_by_the_broker_with_its_own_error(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, configs={"max.message.bytes": "10000"})
    outcomes: list[int | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        del message
        outcomes.append(error.code() if error else None)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, bytes(50_000), on_delivery=delivered)
    producer.flush(30)
    producer.produce(topic, b"fits", on_delivery=delivered)
    producer.flush(30)
    assert outcomes == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_a_waiting_consumer_gets_a_record_as_soon_as_it_is_written(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    patient = {"fetch.wait.max.ms": "100000", "socket.timeout.ms": "120000"}
    with assigned_consumer(bootstrap, topic, settings=patient) as consumer:
        assert consumer.poll(0.2) is None
        READER.write(bootstrap, topic, [Sent(b"news")])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"news"


def test_the_end_of_a_partition_is_reported(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    READER.write(bootstrap, topic, [Sent(b"only")])
    with assigned_consumer(bootstrap, topic, settings={"enable.partition.eof": "true"}) as consumer:
        first = consumer.poll(30)
        second = consumer.poll(30)
    assert first is not None
    assert first.value() == b"only"
    assert second is not None
    error = second.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF


def test_a_consumer_whose_offset_is_gone_starts_where_it_was_told(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    READER.write(bootstrap, topic, [Sent(b"a"), Sent(b"b")])
    with assigned_consumer(bootstrap, topic, 99, {"auto.offset.reset": "earliest"}) as consumer:
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"a"
    with assigned_consumer(bootstrap, topic, 99, {"auto.offset.reset": "error"}) as consumer:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_several_clients_write_at_once(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    errors: list[BaseException] = []

    def write(client: ClientDriver) -> None:
        try:
            client.write(bootstrap, topic, [Sent(f"{client.name} {number}".encode(), b"k") for number in range(500)])
        except BaseException as error:  # noqa: BLE001 -- handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=write, args=(client,)) for client in CLIENTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    got = READER.read(bootstrap, topic, 500 * len(CLIENTS))
    for client in CLIENTS:
        own = [record.value for record in got if record.value and record.value.startswith(client.name.encode() + b" ")]
        assert own == [f"{client.name} {number}".encode() for number in range(500)]


@every_library
def test_records_written_before_a_restart_are_read_after_it(client: ClientDriver, fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    records = [Sent(b"%d" % number, b"k") for number in range(200)]
    make_topic(broker.bootstrap, "t")
    client.write(broker.bootstrap, "t", records, Writing("zstd"))
    broker.restart()
    got = client.read(broker.bootstrap, "t", 200)
    assert [record.value for record in got] == [record.value for record in records]
