"""The codecs' contract with the rooms above: records are not copied, files are not read, errors name the message."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from tidelog.wire.codec import Splice, decode, encode, to_bytes
from tidelog.wire.errors import DecodeError, EncodeError, WireError
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PLAIN, COMPACT = 4, 12


@dataclass(frozen=True)
class StoredRecords:
    """Records that stay in a file."""

    size: int


def fetched(*records: Any) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, error_code=0, high_watermark=0, aborted_transactions=None, records=value)
        for index, value in enumerate(records)
    ]
    return FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def produced(records: bytes) -> ProduceRequest:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])


def test_records_are_decoded_to_a_view_of_the_frame() -> None:
    """A produce request is large; its batch is patched and written from where it was received."""
    frame = bytearray(to_bytes(produced(b"batch"), 9))
    records = decode(ProduceRequest, memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    records[0:1] = b"B"
    assert b"Batch" in frame


def test_everything_else_is_copied_out_of_the_frame() -> None:
    frame = bytearray(to_bytes(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4))
    request = decode(HeartbeatRequest, memoryview(frame), 4)
    frame[:] = bytes(len(frame))
    assert request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("version", [PLAIN, COMPACT])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_in_memory_can_be_any_buffer(version: int, kind: Any) -> None:
    assert to_bytes(fetched(kind(b"batch")), version) == to_bytes(fetched(b"batch"), version)


@pytest.mark.parametrize("version", [PLAIN, COMPACT])
def test_records_in_files_are_noted_where_they_belong(version: int) -> None:
    stored = [StoredRecords(200), StoredRecords(0), StoredRecords(3)]
    out = bytearray(b"before")
    splices: list[Splice] = []
    encode(fetched(stored[0], b"here", stored[1], stored[2], None), version, out, splices)
    assert [records for _, records in splices] == stored

    whole, done = bytearray(), 0
    for position, records in splices:
        whole += out[done:position] + b"f" * records.size
        done = position
    whole += out[done:]
    expected = fetched(b"f" * 200, b"here", b"", b"fff", None)
    assert bytes(whole) == b"before" + to_bytes(expected, version)


def test_records_in_files_are_not_silently_left_out() -> None:
    with pytest.raises(EncodeError, match="FetchResponse has records in files"):
        to_bytes(fetched(StoredRecords(1)), COMPACT)


def test_errors_name_the_message_and_its_version() -> None:
    with pytest.raises(DecodeError, match="HeartbeatRequest v4 is cut short"):
        decode(HeartbeatRequest, b"", 4)
    with pytest.raises(EncodeError, match="HeartbeatRequest v4 cannot be encoded"):
        to_bytes(HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"), 4)
    assert issubclass(DecodeError, WireError)
    assert issubclass(EncodeError, WireError)


def test_tracebacks_show_the_lines_of_a_generated_codec() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(HeartbeatRequest, b"\x05", 4)
    assert "too_short" in "".join(traceback.format_exception(caught.value))
