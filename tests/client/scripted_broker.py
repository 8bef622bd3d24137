"""A broker of a few lines on a real socket: keeps records in memory, and misbehaves exactly as a test tells it to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.errors import ErrorCode
from tidelog.records.header import patch, peek
from tidelog.types import LeaderEpoch, Offset, TopicId, TopicPartition, new_topic_id
from tidelog.wire.codec import decode
from tidelog.wire.headers import encode_response, read_request_header, skip_header_tags
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from tidelog.wire.declare import Message

R = TypeVar("R", bound="Message")

REQUESTS: tuple[type[Message], ...] = (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)


class Misdeed(Enum):
    HANG_UP = "close the connection without an answer"
    SILENCE = "never answer"


HANG_UP, SILENCE = Misdeed.HANG_UP, Misdeed.SILENCE


class ScriptedBroker:
    """`on(Request, reaction)` changes the answers: the reaction sees each such request and may answer it itself."""

    def __init__(self, topics: dict[str, int] | None = None, *, node_id: int = 1) -> None:
        self.node_id = node_id
        self.port = 0
        self.topics = dict(topics or {})
        self.topic_ids: dict[str, TopicId] = {name: new_topic_id() for name in self.topics}
        self.peers: list[ScriptedBroker] = []
        self.leaders: dict[TopicPartition, int] = {}
        self.leader_epoch = 0
        self.logs: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        self.log_start = 0
        self.batches_per_fetch: int | None = None
        self.seen: list[Message] = []
        self.versions: dict[type[Message], list[int]] = defaultdict(list)
        self.offered = {cls.API: (cls.VERSIONS.first, cls.VERSIONS.last) for cls in REQUESTS}
        self.features: dict[str, int] = {}
        self.connections = 0
        self._reactions: dict[type[Message], Callable[[Any, int], Message | Misdeed | None]] = {}
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._producer_ids = 1000
        self._writers: set[asyncio.StreamWriter] = set()
        self._deserted = asyncio.Event()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on(self, request: type[R], reaction: Callable[[R, int], Message | Misdeed | None]) -> None:
        """The reaction gets the request and how many of its kind came before; None: answer as usual."""
        self._reactions[request] = reaction

    def requests(self, kind: type[R]) -> list[R]:
        return [request for request in self.seen if isinstance(request, kind)]

    async def all_gone(self) -> None:
        """Waits until nobody is connected any more."""
        await self._deserted.wait()

    async def something_stored(self) -> None:
        """Waits until there is a batch in some log."""
        if not any(self.logs.values()):
            await self._arrived.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._deserted.clear()
        self._writers.add(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                reply = await self._answer(memoryview(await reader.readexactly(length)))
                if reply is HANG_UP:
                    return
                if isinstance(reply, bytearray):
                    writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections -= 1
            if not self.connections:
                self._deserted.set()
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: memoryview) -> bytearray | Misdeed | None:
        header = read_request_header(frame)
        kind = next(cls for cls in REQUESTS if header.api == cls.API)
        if header.version > self.offered[header.api][1]:
            assert kind is ApiVersionsRequest, "only ApiVersions may be asked in a version that was not offered"
            refusal = self._offer(ErrorCode.UNSUPPORTED_VERSION)
            return encode_response(refusal, 0, header.correlation_id)[0]
        body = skip_header_tags(frame, header.body) if header.version in kind.FLEXIBLE else header.body
        request = decode(kind, frame, header.version, body)
        before = len(self.requests(kind))
        self.seen.append(request)
        self.versions[kind].append(header.version)
        reaction = self._reactions.get(kind)
        reply = reaction(request, before) if reaction is not None else None
        if reply is None:
            reply = await self._usual(request)
        if reply is None or isinstance(reply, Misdeed):
            return reply
        return encode_response(reply, header.version, header.correlation_id)[0]

    async def _usual(self, request: Message) -> Message | None:
        if isinstance(request, ApiVersionsRequest):
            return self._offer(ErrorCode.NONE)
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, ProduceRequest):
            reply = self._produce(request)
            return reply if request.acks else None
        if isinstance(request, FetchRequest):
            return await self._fetch(request)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epoch_ends(request)
        if isinstance(request, InitProducerIdRequest):
            self._producer_ids += request.producer_id < 0
            return InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=0,
                producer_id=self._producer_ids,
                producer_epoch=request.producer_epoch + 1,
            )
        if isinstance(request, FindCoordinatorRequest | AddPartitionsToTxnRequest | EndTxnRequest):
            return self._coordinate(request)
        if isinstance(request, CreateTopicsRequest):
            return self._create(request)
        assert isinstance(request, DeleteTopicsRequest)
        return self._delete(request)

    def _offer(self, code: ErrorCode) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=key, min_version=low, max_version=top) for key, (low, top) in self.offered.items()]
        features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self.features.items()
        ]
        return ApiVersionsResponse(error_code=code, api_keys=keys, finalized_features=features)

    def _coordinate(self, request: FindCoordinatorRequest | AddPartitionsToTxnRequest | EndTxnRequest) -> Message:
        if isinstance(request, FindCoordinatorRequest):
            found = [
                Coordinator(key=key, node_id=self.node_id, host="127.0.0.1", port=self.port)
                for key in request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        if isinstance(request, EndTxnRequest):
            # Only those who go by the newer rules look at what is next.
            return EndTxnResponse(
                throttle_time_ms=0,
                error_code=0,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch + 1,
            )
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=0)
                    for each in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topics)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted: Iterable[str] = self.topics if request.topics is None else [each.name or "" for each in request.topics]
        brokers = [self, *self.peers]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=b.node_id, host="127.0.0.1", port=b.port) for b in brokers],
            cluster_id="scripted",
            controller_id=self.node_id,
            topics=[self._metadata_topic(name) for name in wanted],
        )

    def _metadata_topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
        partitions = []
        for index in range(self.topics[name]):
            leader = self.leaders.get(TopicPartition(name, index), self.node_id)
            partitions.append(
                MetadataResponsePartition(
                    error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=[self.node_id],
                    isr_nodes=[self.node_id],
                )
            )
        return MetadataResponseTopic(error_code=0, name=name, topic_id=self.topic_ids[name], partitions=partitions)

    def name_of(self, name: str, topic_id: bytes) -> str:
        return name or next(each for each, known in self.topic_ids.items() if known == topic_id)

    def append(self, partition: TopicPartition, batch: bytes) -> int:
        """Stores a batch as a leader does; gives its base offset."""
        stored = bytearray(batch)
        base = self.ends[partition]
        patch(stored, 0, Offset(base), LeaderEpoch(self.leader_epoch))
        self.logs[partition].append(bytes(stored))
        self.ends[partition] = peek(stored).next_offset
        self._arrived.set()
        self._arrived = asyncio.Event()
        return base

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        responses = []
        for topic in request.topic_data:
            name = self.name_of(topic.name, topic.topic_id)
            answers = []
            for data in topic.partition_data:
                assert isinstance(data.records, memoryview)
                base = self.append(TopicPartition(name, data.index), bytes(data.records))
                answers.append(PartitionProduceResponse(index=data.index, error_code=0, base_offset=base))
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return ProduceResponse(responses=responses)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        reply, size = self._fetch_now(request)
        if not size and request.max_wait_ms:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            reply, _ = self._fetch_now(request)
        return reply

    def _fetch_now(self, request: FetchRequest) -> tuple[FetchResponse, int]:
        responses, size = [], 0
        for topic in request.topics:
            name = self.name_of(topic.topic, topic.topic_id)
            answers = []
            for asked in topic.partitions:
                partition = TopicPartition(name, asked.partition)
                end = self.ends[partition]
                gone = not self.log_start <= asked.fetch_offset <= end
                stored = [batch for batch in self.logs[partition] if peek(batch).last_offset >= asked.fetch_offset]
                records = b"".join(stored[: self.batches_per_fetch])
                size += len(records) or gone
                answers.append(
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=ErrorCode.OFFSET_OUT_OF_RANGE if gone else 0,
                        high_watermark=end,
                        aborted_transactions=None,
                        records=b"" if gone else records,
                    )
                )
            responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        return FetchResponse(throttle_time_ms=0, responses=responses), size

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                end = self.ends[TopicPartition(topic.name, asked.partition_index)]
                offset = {-1: end, -2: self.log_start}.get(asked.timestamp, -1)
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=0, offset=offset)
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                log = [peek(batch) for batch in self.logs[TopicPartition(topic.topic, asked.partition)]]
                known = [batch for batch in log if batch.leader_epoch <= asked.leader_epoch]
                answers.append(
                    EpochEndOffset(
                        error_code=0,
                        partition=asked.partition,
                        leader_epoch=known[-1].leader_epoch if known else -1,
                        end_offset=known[-1].next_offset if known else -1,
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def _create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            exists = topic.name in self.topics
            self.topics.setdefault(topic.name, max(1, topic.num_partitions))
            self.topic_ids.setdefault(topic.name, new_topic_id())
            results.append(
                CreatableTopicResult(
                    name=topic.name,
                    topic_id=self.topic_ids[topic.name],
                    error_code=ErrorCode.TOPIC_ALREADY_EXISTS if exists else 0,
                    error_message="it exists" if exists else None,
                    num_partitions=self.topics[topic.name],
                    replication_factor=1,
                )
            )
        return CreateTopicsResponse(throttle_time_ms=0, topics=results)

    def _delete(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        names = request.topic_names or [topic.name or "" for topic in request.topics]
        responses = []
        for name in names:
            known = self.topics.pop(name, None) is not None
            code = 0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            responses.append(DeletableTopicResult(name=name, error_code=code))
        return DeleteTopicsResponse(throttle_time_ms=0, responses=responses)
