"""Asks the leader of one partition for records that must be there, and finds out what became of those that are not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.client.backoff import Deadline
from tidelog.client.errors import ClientError, TimedOut, check, error_code, refusal, worth_retrying
from tidelog.client.offsets import OffsetSpec, list_offsets
from tidelog.errors import BrokerError, ErrorCode
from tidelog.pipelines.source.errors import SourceError
from tidelog.records.header import HEADER_SIZE, peek
from tidelog.types import ZERO_TOPIC_ID, BrokerId, format_topic_id
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ConsumerConfig
    from tidelog.types import TopicId, TopicPartition
    from tidelog.wire.messages.fetch import PartitionData

_NAMED_FETCH_MAX: Final = 12  # later versions name topics by their id
_EMPTY_IS_CERTAIN: Final = 2
"""Answers of a leader, in a row, that has everything up to the end and no record of it."""
_MISSING_IS_CERTAIN: Final = 4
"""Answers in a row that a topic does not exist: a broker that has just started may need a moment to know of it."""
_OFFSET_BYTES: Final = 1024.0
_FETCH_BYTES_MIN: Final = 64 << 10
_MARGIN: Final = 1.1
_ABOUT_TOPICS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Gone(Exception):  # noqa: N818 - named for the fact it reports
    """The records do not exist any more. `begins` is the first offset that does, None if nothing is left."""

    def __init__(self, reason: str, begins: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.begins = begins


class RangeFetcher:
    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, partition: TopicPartition, topic_id: TopicId, stalled_ms: int
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._partition = partition
        self._topic_id = topic_id
        self._stalled_ms = stalled_ms
        self._offset_bytes = _OFFSET_BYTES
        """What an offset takes, as far as it is known: little more is asked for than what the range holds."""
        self._missing = 0
        """How often brokers have said in a row that the topic does not exist."""
        self._near: BrokerId | None = None
        """A replica that the leader has sent us to (KIP-392)."""

    async def fetch(self, offset: int, end: int) -> PartitionData | None:
        """An answer with records from `offset` on; they may begin with earlier ones of the same batch.

        None when no record before `end` is left, as after compaction. Gone when there were some, and will not be again;
        SourceError when there should be some, and none came in time.
        """
        deadline = Deadline(self._stalled_ms)
        tries = empty = 0
        while True:
            failure: ClientError | BrokerError
            try:
                answer = await self._ask(offset, end)
                if answer.records:
                    self._measure(memoryview(answer.records))  # type: ignore[arg-type]
                    return answer
                if answer.preferred_read_replica >= 0 and self._near is None:
                    self._near = BrokerId(answer.preferred_read_replica)
                    continue
                empty += self._near is None and self._readable_to(answer) >= end
                if empty >= _EMPTY_IS_CERTAIN:
                    return None
                failure = BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, "the broker has no records there yet")
            except (ClientError, BrokerError) as error:
                if not worth_retrying(error) and not self._may_pass(error):
                    raise
                failure = error
            self._near = None
            await self._look_for_reasons(failure, offset)
            wait_s = self._cluster.backoff.delay_s(tries)
            tries += 1
            if wait_s > deadline.remaining_s:
                if isinstance(failure, BrokerError) and failure.code == ErrorCode.OFFSET_NOT_AVAILABLE:
                    raise Gone(f"the partition has ended at offset {offset} for {self._stalled_ms} ms", None)
                raise SourceError(
                    f"{self._partition}: offsets {offset} to {end - 1} could not be read within {self._stalled_ms} ms "
                    f"(kafkaConsumer.pollTimeoutMs); last: {failure}"
                ) from failure
            await asyncio.sleep(wait_s)

    def _measure(self, records: memoryview) -> None:
        """By the first batch: those of a partition are much alike."""
        if len(records) >= HEADER_SIZE:
            header = peek(records)
            self._offset_bytes = max(0, header.size) / max(1, header.last_offset_delta + 1)

    def _readable_to(self, answer: PartitionData) -> int:
        return answer.last_stable_offset if self._config.committed_only else answer.high_watermark

    def _may_pass(self, error: ClientError | BrokerError) -> bool:
        return isinstance(error, BrokerError) and error.code in {*_ABOUT_TOPICS, ErrorCode.OFFSET_OUT_OF_RANGE}

    async def _ask(self, offset: int, end: int) -> PartitionData:
        leader = (await self._cluster.leader(self._partition)).id if self._near is None else self._near
        connection = await self._cluster.connection(leader)
        reply = await connection.send(
            self._request(offset, end),
            FetchResponse,
            limit=_NAMED_FETCH_MAX if self._topic_id == ZERO_TOPIC_ID else None,
        )
        check(reply.error_code, about=str(self._partition))
        for topic in reply.responses:
            for answer in topic.partitions:
                check(answer.error_code, about=str(self._partition))
                return answer
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(self._partition))

    def _request(self, offset: int, end: int) -> FetchRequest:
        config = self._config
        wanted_bytes = max(_FETCH_BYTES_MIN, int((end - offset) * self._offset_bytes * _MARGIN))
        known = self._cluster.metadata.partition(self._partition)
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=known.leader_epoch if known is not None and self._near is None else -1,
            fetch_offset=offset,
            partition_max_bytes=min(config.max_partition_fetch_bytes, wanted_bytes),
        )
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=max(config.fetch_max_bytes, config.max_partition_fetch_bytes),
            isolation_level=int(config.committed_only),
            rack_id=config.client_rack,
            topics=[FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[wanted])],
        )

    async def _look_for_reasons(self, failure: ClientError | BrokerError, offset: int) -> None:
        """Gone if the records cannot come any more. Leaders that moved are found, too."""
        try:
            await self._cluster.refresh([self._partition.topic])
            self._look_for_topic(failure)
            code = failure.code if isinstance(failure, BrokerError) else ErrorCode.NONE
            if code in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE}:
                await self._look_for_offset(offset, certain=code == ErrorCode.OFFSET_OUT_OF_RANGE)
        except (ClientError, BrokerError) as error:
            if not (worth_retrying(error) or isinstance(error, TimedOut)):
                raise

    def _look_for_topic(self, failure: ClientError | BrokerError) -> None:
        if not isinstance(failure, BrokerError) or failure.code not in _ABOUT_TOPICS:
            return
        topic = self._cluster.metadata.topics.get(self._partition.topic)
        if topic is None or error_code(topic.error) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missing += 1
            if self._missing >= _MISSING_IS_CERTAIN:
                raise Gone(f"topic {self._partition.topic} has been deleted", None)
            return
        self._missing = 0
        if ZERO_TOPIC_ID not in {self._topic_id, topic.topic_id} and topic.topic_id != self._topic_id:
            raise Gone(
                f"topic {self._partition.topic} has been deleted and created anew "
                f"(its id is {format_topic_id(topic.topic_id)} instead of {format_topic_id(self._topic_id)})",
                None,
            )

    async def _look_for_offset(self, offset: int, *, certain: bool) -> None:
        at = self._partition
        begins = await self._bound(OffsetSpec.earliest())
        if begins is not None and offset < begins:
            raise Gone(f"the partition now begins at offset {begins}: earlier ones were deleted", begins)
        ends = await self._bound(OffsetSpec.latest())
        if certain and ends is not None and offset > ends:
            raise Gone(f"the partition {at} now ends at offset {ends}: later ones were lost", None)

    async def _bound(self, spec: OffsetSpec) -> int | None:
        deadline = Deadline(self._config.request_timeout_ms)
        found = (await list_offsets(self._cluster, {self._partition: spec}, deadline))[self._partition]
        return None if found is None else found.offset
