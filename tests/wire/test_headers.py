"""Request and reply headers, byte by byte and against kio's."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from declared_values import VERSIONED, filled, versioned_id
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header import v1 as request_header_v1
from kio.schema.request_header import v2 as request_header_v2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from tidelog.wire.api_keys import ApiKey
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.errors import DecodeError, EncodeError
from tidelog.wire.headers import (
    encode_request,
    encode_response,
    read_request_header,
    response_body,
    skip_header_tags,
)
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from tidelog.wire.declare import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
FIRST_FLEXIBLE_HEARTBEAT = 4

REQUESTS = [(cls, version) for cls, version in VERSIONED if cls.IS_REQUEST]
REPLIES = [(cls, version) for cls, version in VERSIONED if cls.__name__.endswith("Response")]


@dataclass(frozen=True)
class StoredRecords:
    """Records that stay in a file."""

    size: int


def fetched(records: StoredRecords) -> FetchResponse:
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=9, aborted_transactions=None, records=records
    )
    return FetchResponse(
        throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", topic_id=b"\1" * 16, partitions=[partition])]
    )


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_request_header_is_key_version_correlation_and_client_id() -> None:
    frame = encode_request(HEARTBEAT, 3, 77, "me")
    assert frame[4:16] == struct.pack(">hhih2s", 12, 3, 77, 2, b"me")
    assert bytes(frame[16:]) == to_bytes(HEARTBEAT, 3)


def test_a_flexible_header_ends_in_tags_but_its_client_id_keeps_the_old_length() -> None:
    frame = encode_request(HEARTBEAT, FIRST_FLEXIBLE_HEARTBEAT, 77, "me")
    assert frame[4:17] == struct.pack(">hhih2sb", 12, FIRST_FLEXIBLE_HEARTBEAT, 77, 2, b"me", 0)
    assert bytes(frame[17:]) == to_bytes(HEARTBEAT, FIRST_FLEXIBLE_HEARTBEAT)


@pytest.mark.parametrize(
    ("version", "header"),
    [(3, request_header_v1.RequestHeader), (FIRST_FLEXIBLE_HEARTBEAT, request_header_v2.RequestHeader)],
)
@pytest.mark.parametrize("client_id", ["rdkafka", "", None, "ünïcode"])
def test_kio_writes_the_same_request_header(version: int, header: Any, client_id: str | None) -> None:
    theirs = io.BytesIO()
    expected = header(
        request_api_key=i16(12), request_api_version=i16(version), correlation_id=i32(-5), client_id=client_id
    )
    entity_writer(header)(theirs, expected)
    assert encode_request(HEARTBEAT, version, -5, client_id)[4:].startswith(theirs.getvalue())


@pytest.mark.parametrize("client_id", ["rdkafka", "", None, "ünïcode", "x" * 32767])
@pytest.mark.parametrize("version", [0, FIRST_FLEXIBLE_HEARTBEAT])
def test_a_request_is_read_back(client_id: str | None, version: int) -> None:
    frame = memoryview(encode_request(HEARTBEAT, version, 2**31 - 1, client_id))[4:]
    header = read_request_header(frame)
    assert header[:4] == (12, version, 2**31 - 1, client_id)
    body = skip_header_tags(frame, header.body) if version in HeartbeatRequest.FLEXIBLE else header.body
    assert decode(HeartbeatRequest, frame, version, body) == HEARTBEAT


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=versioned_id)
def test_a_frame_begins_with_the_number_of_bytes_that_follow(cls: type[Message], version: int) -> None:
    frame = encode_request(filled(cls, version), version, 1, "c")
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)


def test_the_first_controlled_shutdown_has_a_header_without_client_id() -> None:
    frame = encode_request(ControlledShutdownRequest(broker_id=3), 0, 77, "ignored")
    assert frame == struct.pack(">ihhii", 12, 7, 0, 77, 3)
    header = read_request_header(memoryview(frame)[4:])
    assert header == (7, 0, 77, None, 8)

    later = memoryview(encode_request(ControlledShutdownRequest(broker_id=3), 1, 77, "c"))[4:]
    assert read_request_header(later).client_id == "c"


def test_header_tags_nobody_knows_are_skipped() -> None:
    tags = b"\x02\x00\x03abc\x05\x00"
    assert skip_header_tags(memoryview(b"head" + tags + b"body"), 4) == 4 + len(tags)


def test_the_header_of_a_request_nobody_knows_can_be_read() -> None:
    """So that the log can say which API and version a client wanted before its connection is closed."""
    header = read_request_header(memoryview(struct.pack(">hhih", 9999, 31, 5, -1)))
    assert header == (9999, 31, 5, None, 10)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03",
        struct.pack(">hhi", 3, 0, 1),
        struct.pack(">hhih", 3, 0, 1, 5) + b"four",
        struct.pack(">hhih", 3, 0, 1, 2) + b"\xff\xfe",
    ],
    ids=["empty", "key only", "no client id", "client id cut short", "client id not text"],
)
def test_a_broken_request_header_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        read_request_header(memoryview(frame))


@pytest.mark.parametrize(
    "tags",
    [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05abc", b"\x01\x00\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f\x00\x00"],
)
def test_broken_header_tags_are_refused(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        skip_header_tags(memoryview(tags), 0)


@given(st.binary(max_size=40))
def test_noise_is_a_header_or_refused(noise: bytes) -> None:
    try:
        header = read_request_header(memoryview(noise))
        assert skip_header_tags(memoryview(noise), header.body) <= len(noise)
    except DecodeError:
        pass


def test_records_in_files_do_not_go_into_requests() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=StoredRecords(5))])
    with pytest.raises(EncodeError):
        encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9, 1, None)


# --- replies --------------------------------------------------------------------------------------------------------


def test_a_reply_header_is_the_correlation_id() -> None:
    reply = HeartbeatResponse(throttle_time_ms=0, error_code=27)
    frame, splices = encode_response(reply, 3, 77)
    assert bytes(frame) == struct.pack(">iiih", 10, 77, 0, 27)
    assert splices == []


def test_a_flexible_reply_header_ends_in_tags() -> None:
    reply = HeartbeatResponse(throttle_time_ms=0, error_code=27)
    frame, _ = encode_response(reply, FIRST_FLEXIBLE_HEARTBEAT, 77)
    assert bytes(frame) == struct.pack(">iibihb", 12, 77, 0, 0, 27, 0)


@pytest.mark.parametrize("version", list(ApiVersionsResponse.VERSIONS))
def test_replies_to_api_versions_never_have_header_tags(version: int) -> None:
    """The client has to read this one before it knows what the broker speaks."""
    reply = ApiVersionsResponse(error_code=0, api_keys=[])
    frame, _ = encode_response(reply, version, 77)
    assert bytes(frame[4:]) == struct.pack(">i", 77) + to_bytes(reply, version)
    assert response_body(ApiVersionsResponse, memoryview(frame)[4:], version) == 4


def test_api_versions_in_a_version_too_new_can_be_answered_in_the_first() -> None:
    """The client reads the range for key 18 out of that reply, and asks again."""
    frame = bytearray(memoryview(encode_request(ApiVersionsRequest(), 4, 77, "new"))[4:])
    struct.pack_into(">h", frame, 2, 99)
    header = read_request_header(memoryview(frame))
    assert (header.api, header.version, header.correlation_id) == (ApiKey.API_VERSIONS, 99, 77)

    own_range = ApiVersion(api_key=18, min_version=0, max_version=4)
    reply, _ = encode_response(ApiVersionsResponse(error_code=35, api_keys=[own_range]), 0, 77)
    assert bytes(reply[4:]) == struct.pack(">ihihhh", 77, 35, 1, 18, 0, 4)


@pytest.mark.parametrize(("cls", "version"), REPLIES, ids=versioned_id)
def test_a_reply_is_read_back(cls: type[Message], version: int) -> None:
    reply = filled(cls, version)
    frame, _ = encode_response(reply, version, 77)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 77)
    body = memoryview(frame)[4:]
    assert decode(cls, body, version, response_body(cls, body, version)) == reply


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_reply_counts_records_that_are_still_in_files(version: int) -> None:
    frame, splices = encode_response(fetched(StoredRecords(1000)), version, 77)
    ((position, records),) = splices
    assert records.size == 1000
    assert struct.unpack_from(">i", frame) == (len(frame) - 4 + 1000,)

    whole = memoryview(bytes(frame[:position]) + b"r" * 1000 + bytes(frame[position:]))[4:]
    reply = decode(FetchResponse, whole, version, response_body(FetchResponse, whole, version))
    assert reply.responses[0].partitions[0].records == b"r" * 1000


# --- what clients really send ---------------------------------------------------------------------------------------


def test_three_stray_bytes_of_librdkafka_after_a_metadata_request_are_ignored() -> None:
    """It leaves room for a four-byte count, of which one byte is read as null and two more as flags."""
    body = bytes(4) + b"\x00\x00" + b"\x00" + b"\x00"
    request = decode(MetadataRequest, body, 9)
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert len(body) - len(to_bytes(request, 9)) == 3
