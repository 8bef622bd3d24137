"""Keeps fetching what is assigned: finds out where to begin, asks brokers, follows leaders, waits where it must."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.divergence import UNKNOWN, EpochEnd, Finding, compare
from tidelog.client.errors import (
    BadReply,
    ClientError,
    LogTruncated,
    NoOffset,
    NotSupported,
    OffsetOutOfRange,
    TimedOut,
    check,
    error_code,
    refusal,
    worth_retrying,
)
from tidelog.client.fetching import NEVER_S, FetchPlan, FetchPlanner, PartitionBuffer
from tidelog.client.offsets import EpochQuestion, OffsetSpec, epoch_ends, list_offsets
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import ZERO_TOPIC_ID, BrokerId, Offset, TopicPartition
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tidelog.client.background import Background
    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ConsumerConfig
    from tidelog.client.offsets import OffsetAndMetadata

    Committed = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]

log = logging.getLogger(__name__)

_NAMED_FETCH_MAX: Final = 12  # later versions name topics by their id
_RESET_SPECS: Final = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}


class _Place(NamedTuple):
    """Where a buffer was when a broker was asked about it."""

    buffer: PartitionBuffer
    generation: int
    fetch_offset: Offset
    leader_epoch: int

    @classmethod
    def of(cls, buffer: PartitionBuffer, leader_epoch: int) -> _Place:
        return cls(buffer, buffer.generation, buffer.fetch_offset, leader_epoch)

    @property
    def still(self) -> bool:
        """It is still there, so that the answer is of use."""
        return (self.buffer.generation, self.buffer.fetch_offset) == (self.generation, self.fetch_offset)


class Fetcher:
    """`buffers` are the assigned partitions; whoever changes them or takes records out calls `wake` or `taken`."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, background: Background, committed: Committed | None
    ) -> None:
        self.buffers: dict[TopicPartition, PartitionBuffer] = {}
        self.arrived = asyncio.Event()
        """Set whenever there may be something to read, or an error to raise."""
        self.error: BaseException | None = None
        self._cluster = cluster
        self._config = config
        self._background = background
        self._committed = committed
        self._planner = FetchPlanner(
            config.fetch_max_wait_ms / 1000,
            bytes_max=config.prefetch_max_bytes,
            records_max=config.prefetch_max_records,
        )
        self._wake = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None

    def new_buffer(self, partition: TopicPartition) -> PartitionBuffer:
        return PartitionBuffer(partition, check_crcs=self._config.check_crcs)

    def wake(self) -> None:
        self._wake.set()

    def taken(self, buffer: PartitionBuffer, *, was_fetchable: bool) -> None:
        """The application took records out of a buffer."""
        if self._planner.full or (buffer.fetchable and not was_fetchable):
            self._wake.set()

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self.arrived.set()

    async def resolve(self, specs: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, Offset]:
        """A time after the last record means the end."""
        committed_only = self._config.committed_only
        found = await list_offsets(self._cluster, specs, committed_only=committed_only)
        missing = {partition: OffsetSpec.latest() for partition, offset in found.items() if offset is None}
        ends = await list_offsets(self._cluster, missing, committed_only=committed_only) if missing else {}
        offsets = {partition: offset or ends[partition] for partition, offset in found.items()}
        return {partition: offset.offset for partition, offset in offsets.items() if offset is not None}

    async def run(self) -> None:
        """Keeps one fetch in flight to every broker that has something of ours, until cancelled."""
        try:
            while True:
                self._wake.clear()
                now_s = asyncio.get_running_loop().time()
                self._locate_due(now_s)
                self._check_due(now_s)
                for plan in self._planner.plan(self.buffers.values(), self._leader_of, now_s):
                    # Here and now: of a leader that comes up in the meantime nothing may be read before it is asked.
                    places = [_Place.of(buffer, self._leader_epoch(buffer)) for buffer in plan.buffers]
                    self._background.start(self._fetch(plan, places), f"tidelog fetch from broker {plan.broker}")
                next_s = self._planner.next_due_s(self.buffers.values(), now_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if next_s is None else next_s - now_s):
                        await self._wake.wait()
        except Exception as error:
            log.exception("the consumer cannot go on")
            self.fail(error)

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        leader = self._cluster.metadata.leader_of(partition)
        if leader is None:
            self._refresh()
        return leader.id if leader is not None else None

    # Fetching

    async def _fetch(self, plan: FetchPlan, places: list[_Place]) -> None:
        empty = True
        try:
            answers = await self._ask(plan, places)
            for place in places:
                # Meanwhile the application may have gone elsewhere, or another broker may have answered the same.
                answer = answers.get(place.buffer.partition)
                if place.still and answer is not None:
                    empty &= not self._settle(plan.broker, place, answer)
        except (ClientError, BrokerError) as error:
            if worth_retrying(error) or isinstance(error, BadReply):
                for buffer in plan.buffers:
                    self._delay(buffer, error)
            else:
                self.fail(error)
        except Exception as error:
            log.exception("a fetch failed for no good reason")
            self.fail(error)
        finally:
            self._planner.finished(plan, empty=empty, now_s=asyncio.get_running_loop().time())
            self._wake.set()

    async def _ask(self, plan: FetchPlan, places: list[_Place]) -> dict[TopicPartition, PartitionData]:
        connection = await self._cluster.connection(plan.broker)
        request = self._request(plan, places)
        limit = _NAMED_FETCH_MAX if any(topic.topic_id == ZERO_TOPIC_ID for topic in request.topics) else None
        names = {topic.topic_id: topic.topic for topic in request.topics}
        reply = await connection.send(request, FetchResponse, limit=limit)
        check(reply.error_code, about="fetching")
        return {
            TopicPartition(topic.topic or names.get(topic.topic_id, ""), answer.partition_index): answer
            for topic in reply.responses
            for answer in topic.partitions
        }

    def _request(self, plan: FetchPlan, places: list[_Place]) -> FetchRequest:
        config, metadata = self._config, self._cluster.metadata
        topics: dict[str, list[FetchPartition]] = {}
        for place in places:
            topic, partition = place.buffer.partition
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=place.leader_epoch,
                    fetch_offset=place.fetch_offset,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=0 if plan.partial else config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=int(min(config.fetch_max_bytes, self._planner.room_bytes(self.buffers.values()))),
            isolation_level=int(config.committed_only),
            rack_id=config.client_rack,
            topics=[
                FetchTopic(topic=name, topic_id=metadata.topic_id(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _settle(self, broker: BrokerId, place: _Place, answer: PartitionData) -> bool:
        """Takes in one partition's part of an answer; true if it brought records."""
        buffer = place.buffer
        code = error_code(answer.error_code)
        if code and buffer.preferred is not None and buffer.preferred[0] == broker:
            # Followers may be behind, or none any more: the leader knows.
            buffer.preferred = None
            self._delay(buffer, refusal(answer.error_code, about=str(buffer.partition)))
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(buffer)
        elif code:
            error = refusal(answer.error_code, about=str(buffer.partition))
            if not code.retriable:
                self.fail(error)
            else:
                self._delay(buffer, error)
        else:
            return self._take_in(broker, place, answer)
        return False

    def _take_in(self, broker: BrokerId, place: _Place, answer: PartitionData) -> bool:
        buffer = place.buffer
        buffer.high_watermark = Offset(answer.high_watermark)
        buffer.last_stable_offset = Offset(answer.last_stable_offset)
        buffer.failures = 0
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica != broker:
            until_s = asyncio.get_running_loop().time() + self._config.metadata_max_age_ms / 1000
            buffer.preferred = (BrokerId(answer.preferred_read_replica), until_s)
            return True  # not records, but the next fetch will not be the same
        if not answer.records:
            return False
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        shown = aborted if self._config.committed_only else None
        if buffer.add(memoryview(answer.records), shown, place.leader_epoch):  # type: ignore[arg-type]
            self.arrived.set()
            return True
        return False

    def _delay(self, buffer: PartitionBuffer, error: Exception) -> None:
        level = logging.WARNING if buffer.failures == 0 else logging.DEBUG
        log.log(level, "%s: fetching failed, trying again: %s", buffer.partition, error)
        wait_s = self._cluster.backoff.delay_s(buffer.failures)
        buffer.not_before_s = asyncio.get_running_loop().time() + wait_s
        buffer.failures += 1
        buffer.preferred = None
        self._refresh()

    # Where to begin

    def _out_of_range(self, buffer: PartitionBuffer) -> None:
        if buffer.waiting:
            return  # the application reads on; the question will come up again if it is still one by then
        spec = _RESET_SPECS.get(self._config.reset)
        if spec is None:
            self.fail(OffsetOutOfRange(buffer.partition, buffer.fetch_offset))
            buffer.not_before_s = NEVER_S
            return
        log.warning(
            "%s: offset %d is gone, going on from the %s",
            buffer.partition,
            buffer.fetch_offset,
            self._config.reset,
        )
        buffer.lose(spec)

    def _locate_due(self, now_s: float) -> None:
        due = [
            buffer
            for buffer in self.buffers.values()
            if not (buffer.located or buffer.locating) and buffer.not_before_s <= now_s
        ]
        if due:
            for buffer in due:
                buffer.locating = True
            self._background.start(self._locate(due), "tidelog positions")

    async def _locate(self, buffers: list[PartitionBuffer]) -> None:
        try:
            await self._begin_at_commits([buffer for buffer in buffers if buffer.ask_group])
            await self._begin_at_specs([buffer for buffer in buffers if buffer.lost is not None])
        except (ClientError, BrokerError) as error:
            for buffer in buffers:
                if buffer.located:
                    continue
                if worth_retrying(error) or isinstance(error, TimedOut):
                    self._delay(buffer, error)
                else:
                    buffer.not_before_s = NEVER_S
                    self.fail(error)
        finally:
            for buffer in buffers:
                buffer.locating = False
            self._wake.set()

    async def _begin_at_commits(self, buffers: list[PartitionBuffer]) -> None:
        if not buffers:
            return
        assert self._committed is not None, "only partitions of a group are looked up there"
        generations = [buffer.generation for buffer in buffers]
        found = await self._committed([buffer.partition for buffer in buffers])
        for buffer, generation in zip(buffers, generations, strict=True):
            if buffer.generation != generation:
                continue  # the application went elsewhere meanwhile
            commit = found.get(buffer.partition)
            spec = _RESET_SPECS.get(self._config.reset)
            if commit is not None:
                buffer.seek(commit.offset, commit.leader_epoch)
            elif spec is not None:
                buffer.lose(spec)
            else:
                buffer.not_before_s = NEVER_S
                self.fail(NoOffset(buffer.partition))

    async def _begin_at_specs(self, buffers: list[PartitionBuffer]) -> None:
        wanted = {buffer.partition: (buffer, buffer.generation) for buffer in buffers}
        specs = {buffer.partition: buffer.lost for buffer in buffers if buffer.lost is not None}
        if specs:
            for partition, offset in (await self.resolve(specs)).items():
                buffer, generation = wanted[partition]
                if buffer.generation == generation:
                    buffer.seek(offset)

    # Whether it is still there

    def _check_due(self, now_s: float) -> None:
        """After a change of leaders."""
        due: dict[BrokerId, list[PartitionBuffer]] = {}
        for buffer in self.buffers.values():
            buffer.doubt(self._leader_epoch(buffer))
            if buffer.doubted and not buffer.checking and buffer.not_before_s <= now_s:
                leader = self._leader_of(buffer.partition)
                if leader is not None:
                    buffer.checking = True
                    due.setdefault(leader, []).append(buffer)
        for broker, buffers in due.items():
            self._background.start(self._check(broker, buffers), f"tidelog epochs from broker {broker}")

    async def _check(self, broker: BrokerId, buffers: list[PartitionBuffer]) -> None:
        places = [_Place.of(buffer, self._leader_epoch(buffer)) for buffer in buffers]
        questions = {
            place.buffer.partition: EpochQuestion(place.buffer.fetch_epoch, place.leader_epoch) for place in places
        }
        try:
            answers = await epoch_ends(self._cluster, broker, questions)
            for place in places:
                if place.still:
                    self._compare(place, answers.get(place.buffer.partition))
        except NotSupported:
            for place in places:
                place.buffer.trust(place.leader_epoch)
        except (ClientError, BrokerError) as error:
            for buffer in buffers:
                self._delay(buffer, error)
            if not (worth_retrying(error) or isinstance(error, BadReply)):
                self.fail(error)
        except Exception as error:
            log.exception("a check of what was read failed for no good reason")
            self.fail(error)
        finally:
            for buffer in buffers:
                buffer.checking = False
            self._wake.set()

    def _compare(self, place: _Place, answer: EpochEnd | BrokerError | None) -> None:
        buffer = place.buffer
        if answer is None:
            self._delay(buffer, BadReply(f"{buffer.partition}: the broker's answer leaves it out"))
        elif isinstance(answer, BrokerError):
            self._delay(buffer, answer)
            if not answer.code.retriable:
                buffer.not_before_s = NEVER_S
                self.fail(answer)
        else:
            finding = compare(answer, position=buffer.position, fetch_offset=buffer.fetch_offset)
            if finding is Finding.INTACT:
                buffer.trust(place.leader_epoch)
            elif finding is Finding.AHEAD_LOST:
                buffer.drop_ahead(place.leader_epoch)
            else:
                self._truncated(place, answer)

    def _truncated(self, place: _Place, end: EpochEnd) -> None:
        buffer, common_end = place.buffer, end.common_end
        spec = _RESET_SPECS.get(self._config.reset)
        error = LogTruncated(buffer.partition, buffer.position, common_end)
        if spec is None:
            buffer.drop_ahead()
            buffer.doubted, buffer.not_before_s = True, NEVER_S
            self.fail(error)
            return
        log.warning("%s", error)
        if common_end is None:
            buffer.lose(spec)
        else:
            buffer.seek(common_end, end.leader_epoch, checked_epoch=place.leader_epoch)

    # What is known of leaders

    def _leader_epoch(self, buffer: PartitionBuffer) -> int:
        known = self._cluster.metadata.partition(buffer.partition)
        return UNKNOWN if known is None else known.leader_epoch

    def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._background.start(self._refresh_topics(), "tidelog consumer metadata")

    async def _refresh_topics(self) -> None:
        try:
            await self._cluster.refresh({partition.topic for partition in self.buffers})
        except (ClientError, BrokerError) as error:
            log.debug("refreshing metadata failed: %s", error)
        # A leader that is missing for longer must not become a busy loop.
        await asyncio.sleep(self._cluster.backoff.delay_s(0))
        self._wake.set()
