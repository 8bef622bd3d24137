"""Short forms of the requests that nearly every test sends: one topic, one partition, errors checked or handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.types import NO_PRODUCER_ID, ProducerId
from tidelog.wire.declare import ZERO_UUID
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.testing import RawClient

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3

RECENT_MS = SystemClock().now_ms() - 600_000
"""A time for records whose time does not matter, not so old that retention takes them."""


def batch_of(
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"key",
    timestamp_ms: int = RECENT_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One producer's batch; the records' timestamps rise by one millisecond."""
    records = [Record(index, timestamp_ms + index, key, value) for index, value in enumerate(values)]
    return build_batch(
        records,
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def create_topic(
    client: RawClient, name: str, partitions: int = 1, configs: Mapping[str, str] = {}, *, version: int = 7
) -> bytes:
    """A new topic; gives its id."""
    result = try_create_topic(client, name, partitions, configs, version=version)
    assert result.error_code == ErrorCode.NONE, result
    return result.topic_id


def try_create_topic(
    client: RawClient,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str | None] | Mapping[str, str] = {},
    *,
    replication_factor: int = 1,
    validate_only: bool = False,
    version: int = 7,
) -> CreatableTopicResult:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=validate_only)
    (result,) = client.call(request, version, CreateTopicsResponse).topics
    assert result.name == name
    return result


def delete_topic(client: RawClient, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    (result,) = client.call(request, 6, DeleteTopicsResponse).responses
    return result.error_code


def describe(client: RawClient, name: str, *, auto_create: bool = False, version: int = 12) -> MetadataResponseTopic:
    """What Metadata says of one topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=auto_create)
    (result,) = client.call(request, version, MetadataResponse).topics
    return result


def produce(client: RawClient, topic: str, batch: bytes | bytearray, partition: int = 0, *, acks: int = -1) -> int:
    """Append one batch; gives its base offset."""
    result = try_produce(client, topic, batch, partition, acks=acks)
    assert result.error_code == ErrorCode.NONE, result
    return result.base_offset


def try_produce(
    client: RawClient,
    topic: str,
    batch: bytes | bytearray | None,
    partition: int = 0,
    *,
    acks: int = -1,
    version: int = 9,
    topic_id: bytes = ZERO_UUID,
) -> PartitionProduceResponse:
    request = produce_request(topic, batch, partition, acks=acks, topic_id=topic_id)
    response = client.call(request, version, ProduceResponse)
    (topic_result,) = response.responses
    (result,) = topic_result.partition_responses
    assert result.index == partition
    return result


def produce_request(
    topic: str, batch: bytes | bytearray | None, partition: int = 0, *, acks: int = -1, topic_id: bytes = ZERO_UUID
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def fetch_request(
    topic: str,
    offset: int,
    partition: int = 0,
    *,
    topic_id: bytes = ZERO_UUID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
) -> FetchRequest:
    """A fetch without a session."""
    wanted = FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )


def try_fetch(client: RawClient, request: FetchRequest, version: int = 12) -> PartitionData:
    response = client.call(request, version, FetchResponse)
    assert response.error_code == ErrorCode.NONE, response
    (topic_data,) = response.responses
    (data,) = topic_data.partitions
    return data


def fetch(client: RawClient, topic: str, offset: int = 0, partition: int = 0) -> list[Record]:
    """Everything from the batch that holds `offset` to the high watermark, as far as one megabyte goes."""
    data = try_fetch(client, fetch_request(topic, offset, partition))
    assert data.error_code == ErrorCode.NONE, data
    return records_of(data)


def bytes_of(data: PartitionData) -> bytes:
    assert isinstance(data.records, (bytes, bytearray, memoryview)), "records are empty, never null"
    return bytes(data.records)


def records_of(data: PartitionData) -> list[Record]:
    return [record for batch in iter_batches(bytes_of(data)) for record in iter_records(batch.data)]


def values_in(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values of all records of a partition, however many fetches that takes."""
    offset = list_offset(client, topic, EARLIEST, partition).offset
    end = list_offset(client, topic, LATEST, partition).offset
    values: list[bytes | None] = []
    while offset < end:
        for record in fetch(client, topic, offset, partition):
            if record.offset >= offset:
                values.append(record.value)
                offset = record.offset + 1
    return values


def list_offset(
    client: RawClient, topic: str, timestamp: int, partition: int = 0, *, version: int = 7, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    result = try_list_offset(client, topic, timestamp, partition, version=version, leader_epoch=leader_epoch)
    assert result.error_code == ErrorCode.NONE, result
    return result


def try_list_offset(
    client: RawClient,
    topic: str,
    timestamp: int,
    partition: int = 0,
    *,
    version: int = 7,
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        timeout_ms=10_000,
    )
    (topic_result,) = client.call(request, version, ListOffsetsResponse).topics
    (result,) = topic_result.partitions
    return result


def new_producer_id(client: RawClient) -> tuple[int, int]:
    """A fresh (producer id, epoch)."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    response = client.call(request, 4, InitProducerIdResponse)
    assert response.error_code == ErrorCode.NONE, response
    return response.producer_id, response.producer_epoch
