"""Clients that misbehave on purpose: the others are served meanwhile, and the broker's memory stays bounded."""

from __future__ import annotations

import random
import socket
from struct import pack
from typing import TYPE_CHECKING

import pytest
from asking import batch_of, create_topic, fetch_request, produce, values_in

from tidelog.testing import RawClient, eventually
from tidelog.wire.api_keys import ApiKey
from tidelog.wire.headers import encode_request
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess, StartBroker

MEGABYTE = 1 << 20
NO_TOPICS = MetadataRequest(topics=[], allow_auto_topic_creation=False)


def assert_serves(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        assert client.call(NO_TOPICS, 12, MetadataResponse).controller_id == 0


def test_a_client_that_says_nothing_is_closed_when_its_time_is_over(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"connections.max.idle.ms": "300"})
    with RawClient(broker.port) as silent:
        assert silent.wait_until_closed() == 0
    assert_serves(broker)


def test_a_client_that_stops_in_the_middle_of_a_frame_is_closed_when_its_time_is_over(
    fresh_broker: StartBroker,
) -> None:
    broker = fresh_broker({"connections.max.idle.ms": "300"})
    with RawClient(broker.port) as half:
        half.send_bytes(encode_request(NO_TOPICS, 9, 1, "raw")[:-3])
        assert half.wait_until_closed() == 0
    assert_serves(broker)


def test_a_client_that_never_reads_is_closed_and_its_replies_do_not_pile_up(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"connections.max.idle.ms": "1000"})
    with RawClient(broker.port) as client, RawClient(broker.port, timeout_s=60) as deaf:
        create_topic(client, "t")
        batch = batch_of([bytes(900_000)])
        for _ in range(8):
            produce(client, "t", batch)
        before = broker.resident_bytes()
        request = encode_request(fetch_request("t", 0, partition_max_bytes=64 << 20), 12, 1, "deaf")
        deaf.socket.settimeout(0.5)
        try:
            for _ in range(100):
                deaf.send_bytes(bytes(request) * 10)
        except (TimeoutError, ConnectionError):
            pass  # the broker stopped reading, or closed already
        assert broker.resident_bytes() - before < 64 * MEGABYTE
        assert_serves(broker)
        deaf.socket.settimeout(60)
        deaf.wait_until_closed()
    assert_serves(broker)


def test_a_pipeline_of_requests_from_a_client_that_never_reads_is_held_back(broker: BrokerProcess) -> None:
    """Small requests with larger replies: reading stops before the replies fill the memory."""
    with RawClient(broker.port) as deaf:
        before = broker.resident_bytes()
        block = bytes(encode_request(MetadataRequest(topics=None), 1, 1, "deaf")) * 500
        deaf.socket.settimeout(0.5)
        sent = 0
        try:
            while sent < 64 * MEGABYTE:
                sent += deaf.socket.send(block)
        except (TimeoutError, ConnectionError):
            pass
        assert sent < 64 * MEGABYTE, "the broker took requests without end"
        assert_serves(broker)
        assert broker.resident_bytes() - before < 64 * MEGABYTE


def test_announced_frames_take_no_memory_until_they_arrive(broker: BrokerProcess) -> None:
    before = broker.resident_bytes()
    clients = [RawClient(broker.port) for _ in range(20)]
    try:
        for client in clients:
            client.send_bytes(pack(">i", 100 * MEGABYTE) + b"x" * 1000)
        assert_serves(broker)
        assert broker.resident_bytes() - before < 64 * MEGABYTE
    finally:
        for client in clients:
            client.close()


def test_memory_of_large_frames_is_given_back(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, topic)
        before = broker.resident_bytes()
        too_large = batch_of([bytes(40 * MEGABYTE)])
        for _ in range(4):
            with RawClient(broker.port) as sender:
                sender.send_frame(
                    pack(">hhih", ApiKey.PRODUCE, 3, 1, -1)
                    + pack(">hhii", -1, -1, 1000, 1)
                    + pack(">h", len(topic))
                    + topic.encode()
                    + pack(">iii", 1, 0, len(too_large))
                    + bytes(too_large)
                )
                sender.receive_frame()
        eventually(
            lambda: broker.resident_bytes() - before < 64 * MEGABYTE, "the broker to give back what large frames took"
        )
        assert values_in(client, topic) == []


def test_many_connections_come_and_go_without_a_trace(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.call(NO_TOPICS, 12, MetadataResponse)
        before = broker.open_files()
        for _ in range(5):
            crowd = [RawClient(broker.port) for _ in range(100)]
            for number, member in enumerate(crowd):
                if number % 3 == 0:
                    member.send(NO_TOPICS, 12)
                if number % 3 == 1:
                    member.send_bytes(b"\x00\x00")
            for member in crowd:
                member.close()
        client.call(NO_TOPICS, 12, MetadataResponse)
        # The broker opens files of logs meanwhile, but not hundreds of them.
        eventually(lambda: broker.open_files() < before + 50, "the sockets of departed clients to be closed")


def test_connections_that_are_reset_do_no_harm(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, topic)
        for _ in range(50):
            rude = RawClient(broker.port)
            rude.send(fetch_request(topic, 0, max_wait_ms=60_000), 12)
            rude.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            rude.close()
        assert produce(client, topic, batch_of([b"served"])) == 0


def test_the_number_of_connections_per_address_is_limited(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"max.connections.per.ip": "3"})
    crowd = [RawClient(broker.port) for _ in range(3)]
    for member in crowd:
        member.call(NO_TOPICS, 12, MetadataResponse)
    with RawClient(broker.port) as one_too_many:
        assert one_too_many.wait_until_closed() == 0
    for member in crowd:
        member.call(NO_TOPICS, 12, MetadataResponse)
        member.close()

    def admitted() -> bool:
        try:
            assert_serves(broker)
        except ConnectionError:
            return False
        return True

    eventually(admitted, "a place to become free")


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes_end_the_connection_and_nothing_else(broker: BrokerProcess, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        with RawClient(broker.port) as client:
            key, version = chance.randrange(0, 80), chance.randrange(0, 14)
            body = chance.randbytes(chance.randrange(0, 200))
            client.send_frame(pack(">hhih", key, version, 1, -1) + body)
            client.socket.shutdown(socket.SHUT_WR)
            client.wait_until_closed()
    assert broker.running
    assert_serves(broker)
