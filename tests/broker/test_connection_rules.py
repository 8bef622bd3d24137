"""Frames, headers and the order of replies: what holds for every request on a connection."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest
from asking import batch_of, create_topic, fetch_request, produce, produce_request

from tidelog.errors import ErrorCode
from tidelog.testing import ConnectionEnded, RawClient
from tidelog.wire.api_keys import ApiKey
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.headers import encode_request
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess

ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)
NAMED = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
NO_TOPICS = MetadataRequest(topics=[], allow_auto_topic_creation=False)


def assert_serves(broker: BrokerProcess) -> None:
    """A new client is served."""
    with RawClient(broker.port) as client:
        reply = client.call(NO_TOPICS, 12, MetadataResponse)
        assert [node.node_id for node in reply.brokers] == [0]


@pytest.mark.parametrize("length", [-1, -(2**31), (100 << 20) + 1, 2**31 - 1])
def test_a_frame_length_that_is_negative_or_above_the_limit_closes_the_connection(
    broker: BrokerProcess, raw: RawClient, length: int
) -> None:
    raw.call(NO_TOPICS, 12, MetadataResponse)
    raw.send_bytes(pack(">i", length) + b"more bytes that must not be read as a request")
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


def test_the_frame_limit_is_socket_request_max_bytes(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as exact, RawClient(broker.port) as above:
        exact.send_bytes(pack(">i", 100 << 20))
        above.send_bytes(pack(">i", (100 << 20) + 1))
        assert above.wait_until_closed() == 0
        assert_open(exact)


def assert_open(client: RawClient) -> None:
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x03\x00", pack(">hhih", 3, 12, 7, 1000), pack(">hhi", 3, 12, 7)])
def test_a_frame_too_short_for_its_header_closes_the_connection(
    broker: BrokerProcess, raw: RawClient, body: bytes
) -> None:
    raw.send_frame(body)
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


def test_a_request_cut_short_closes_the_connection(broker: BrokerProcess, raw: RawClient) -> None:
    whole = encode_request(NO_TOPICS, 9, 1, "raw")[4:]
    raw.send_frame(bytes(whole[:-2]))
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


def test_an_absurd_array_count_closes_the_connection_without_memory_for_it(
    broker: BrokerProcess, raw: RawClient
) -> None:
    before = broker.resident_bytes()
    raw.send_frame(pack(">hhih", ApiKey.METADATA, 1, 1, -1) + pack(">i", 2**31 - 1))
    assert raw.wait_until_closed() == 0
    assert broker.resident_bytes() - before < 32 << 20
    assert_serves(broker)


@pytest.mark.parametrize("key", [-1, 999, 32767, ApiKey.VOTE, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS])
def test_an_unknown_api_key_closes_the_connection(broker: BrokerProcess, raw: RawClient, key: int) -> None:
    raw.send_frame(pack(">hhih", key, 0, 1, -1) + bytes(16))
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


@pytest.mark.parametrize(("key", "version"), [(ApiKey.METADATA, 99), (ApiKey.FETCH, 3), (ApiKey.PRODUCE, -1)])
def test_an_unknown_version_closes_the_connection(
    broker: BrokerProcess, raw: RawClient, key: int, version: int
) -> None:
    raw.send_frame(pack(">hhih", key, version, 1, -1) + bytes(16))
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_another_protocol_on_the_port_closes_the_connection_and_is_explained_in_the_log(
    broker: BrokerProcess, raw: RawClient, opening: bytes
) -> None:
    raw.send_bytes(opening)
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


def test_replies_to_requests_before_a_bad_frame_are_still_sent(broker: BrokerProcess, raw: RawClient) -> None:
    good = encode_request(NO_TOPICS, 9, 5, "raw")
    raw.send_bytes(good + pack(">i", -1))
    reply = raw.receive(MetadataResponse, 9, 5)
    assert reply.controller_id == 0
    assert raw.wait_until_closed() == 0
    assert_serves(broker)


def test_a_parked_fetch_holds_back_the_replies_behind_it(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic)
    parked = raw.send(fetch_request(topic, 0, max_wait_ms=20_000, min_bytes=1), 12)
    behind = raw.send(ALL_TOPICS, 12)
    assert_open_without_bytes(raw)
    with RawClient(broker.port) as other:
        produce(other, topic, batch_of([b"wakes the fetch"]))
    first = raw.receive(FetchResponse, 12, parked)
    second = raw.receive(MetadataResponse, 12, behind)
    assert first.responses[0].partitions[0].high_watermark == 1
    assert topic in {entry.name for entry in second.topics}


def assert_open_without_bytes(client: RawClient) -> None:
    timeout = client.socket.gettimeout()
    assert_open(client)
    client.socket.settimeout(timeout)


def test_pipelined_requests_are_answered_in_order(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    sent = bytearray()
    for number in range(200):
        if number % 2:
            sent += encode_request(NO_TOPICS, 9, number, "raw")
        else:
            sent += encode_request(produce_request(topic, batch_of([b"%d" % number])), 9, number, "raw")
    raw.send_bytes(sent)
    offsets = []
    for number in range(200):
        if number % 2:
            raw.receive(MetadataResponse, 9, number)
        else:
            reply = raw.receive(ProduceResponse, 9, number)
            offsets.append(reply.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(100))


def test_a_request_may_arrive_byte_by_byte(raw: RawClient) -> None:
    for byte in encode_request(NO_TOPICS, 9, 77, "raw"):
        raw.send_bytes(bytes([byte]))
    assert raw.receive(MetadataResponse, 9, 77).controller_id == 0


@pytest.mark.parametrize("client_id", [None, "", "a" * 200, "größe-日本"])
@pytest.mark.parametrize("version", [1, 12])
def test_the_client_id_is_a_nullable_string_with_a_two_byte_length_in_every_version(
    broker: BrokerProcess, client_id: str | None, version: int
) -> None:
    with RawClient(broker.port, client_id=client_id) as client:
        assert client.call(MetadataRequest(topics=[]), version, MetadataResponse).controller_id == 0


def test_unknown_tags_in_header_and_body_are_skipped(raw: RawClient) -> None:
    header = pack(">hhih", ApiKey.METADATA, 9, 3, 3) + b"raw" + bytes([1, 77, 4]) + b"what"
    body = to_bytes(NO_TOPICS, 9)
    assert body[-1] == 0, "the body ends with its count of tags"
    raw.send_frame(header + body[:-1] + bytes([2, 5, 1]) + b"x" + bytes([9, 2]) + b"yz")
    assert raw.receive(MetadataResponse, 9, 3).controller_id == 0


def test_bytes_after_the_request_are_ignored(raw: RawClient) -> None:
    """librdkafka leaves three stray bytes behind an all-topics Metadata request."""
    request = bytes(encode_request(ALL_TOPICS, 9, 4, "rdkafka")[4:])
    raw.send_frame(request + b"\x00\x00\x00")
    assert raw.receive(MetadataResponse, 9, 4).controller_id == 0


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_is_answered_with_the_oldest_response_header_in_every_version(
    raw: RawClient, version: int
) -> None:
    raw.send_bytes(encode_request(NAMED, version, 9, "raw"))
    frame = memoryview(raw.receive_frame())
    assert bytes(frame[:4]) == pack(">i", 9)
    reply = decode(ApiVersionsResponse, frame, version, 4)
    assert reply.error_code == ErrorCode.NONE
    assert to_bytes(reply, version) == bytes(frame[4:]), "the body starts right behind the correlation id"


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_in_a_version_of_the_future_is_answered_in_the_oldest_layout(raw: RawClient, version: int) -> None:
    raw.send_frame(pack(">hhih", ApiKey.API_VERSIONS, version, 11, 3) + b"raw" + b"\x00who knows what is here")
    frame = memoryview(raw.receive_frame())
    assert bytes(frame[:4]) == pack(">i", 11)
    reply = decode(ApiVersionsResponse, frame, 0, 4)
    assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
    own = [entry for entry in reply.api_keys if entry.api_key == ApiKey.API_VERSIONS]
    assert [(entry.min_version, entry.max_version) for entry in own] == [(0, 4)]
    again = raw.call(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4, ApiVersionsResponse
    )
    assert again.error_code == ErrorCode.NONE


def test_a_closed_connection_is_reported_as_such(raw: RawClient) -> None:
    raw.send_frame(pack(">hhih", 999, 0, 1, -1))
    with pytest.raises(ConnectionEnded):
        raw.receive_frame()
