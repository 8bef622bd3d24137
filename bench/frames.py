"""Request frames built once, before any clock runs: the load generator only repeats them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.build import append_record, seal_batch
from tidelog.records.header import HEADER_SIZE, MAGIC_V2, NO_SEQUENCE, BatchHeader
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, Offset
from tidelog.wire.headers import encode_request
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Sequence

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CLIENT_ID = "bench"
CORRELATION_ID = 7
_VALUE_BYTES = 1000
_RECORD_OVERHEAD_MAX = 16


class ProduceFrame(NamedTuple):
    frame: bytes
    batch_bytes: int
    records: int


class ExactBatch(NamedTuple):
    data: bytes
    records: int


def produce_frame(topic: str, batch_bytes: int, timestamp_ms: int, acks: int = 1) -> ProduceFrame:
    """A request with one batch of exactly `batch_bytes`, in records of about 1 KB."""
    batch, records = exact_batch(batch_bytes, timestamp_ms)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    frame = encode_request(request, PRODUCE_VERSION, CORRELATION_ID, CLIENT_ID)
    return ProduceFrame(bytes(frame), batch_bytes, records)


def exact_batch(batch_bytes: int, timestamp_ms: int) -> ExactBatch:
    """Records of the usual size, and a last one that fills what is left to the byte."""
    body = bytearray()
    records = 0
    while batch_bytes - HEADER_SIZE - len(body) > 2 * (_VALUE_BYTES + _RECORD_OVERHEAD_MAX):
        append_record(body, records, 0, None, bytes(_VALUE_BYTES))
        records += 1
    left = batch_bytes - HEADER_SIZE - len(body)
    for value_bytes in range(max(left - _RECORD_OVERHEAD_MAX, 0), left):
        last = bytearray()
        if append_record(last, records, 0, None, bytes(value_bytes)) == left:
            header = _header(records + 1, timestamp_ms)
            return ExactBatch(bytes(seal_batch(header, body + last)), records + 1)
    raise ValueError(f"no batch of records has exactly {batch_bytes} bytes")


def fetch_frames(topic: str, offsets: Sequence[int], chunk_bytes: int) -> list[bytes]:
    """One request for each of the offsets, each for one chunk of records."""
    return [_fetch_frame(topic, offset, chunk_bytes) for offset in offsets]


def tiny_frame() -> bytes:
    """The smallest request of the protocol: which APIs are served?"""
    return bytes(encode_request(ApiVersionsRequest(), 0, CORRELATION_ID, CLIENT_ID))


def _fetch_frame(topic: str, offset: int, chunk_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=chunk_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=chunk_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return bytes(encode_request(request, FETCH_VERSION, CORRELATION_ID, CLIENT_ID))


def _header(records: int, timestamp_ms: int) -> BatchHeader:
    return BatchHeader(
        base_offset=Offset(0),
        batch_length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC_V2,
        crc=0,
        attributes=0,
        last_offset_delta=records - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=records,
    )
