"""Copies partitions from one leader: fetch, append, say how far we are with the next fetch, for as long as it leads.

One task per leader. What the leader says of a partition counts only if the partition's role has not changed since it
was asked. A partition that cannot go on pauses, the others do not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.follower_session import Asked, FollowerSession, Place
from tidelog.replication.throttle import is_throttled
from tidelog.replication.waiting import ProduceWait
from tidelog.storage.epochs import EpochEnd
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.clock import Clock
    from tidelog.replication.partition import Partition
    from tidelog.replication.throttle import Allowance
    from tidelog.types import TopicPartition
    from tidelog.wire.declare import Message
    from tidelog.wire.messages.fetch import PartitionData

logger = logging.getLogger(__name__)

PAUSE_MS_MIN = 20
PARTITIONS_PER_TURN = 50
BYTES_PER_TURN = 1 << 20

_SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_PASSES_SOON = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The leader has not heard of its role yet, or we have not heard of another one: no reason to worry."""


class FetchSettings(Protocol):
    """The broker's settings, as far as fetching from leaders goes."""

    @property
    def replica_fetch_max_bytes(self) -> int: ...
    @property
    def replica_fetch_response_max_bytes(self) -> int: ...
    @property
    def replica_fetch_min_bytes(self) -> int: ...
    @property
    def replica_fetch_wait_max_ms(self) -> int: ...
    @property
    def replica_fetch_backoff_ms(self) -> int: ...
    @property
    def num_replica_fetchers(self) -> int: ...
    @property
    def follower_replication_throttled_rate(self) -> int: ...


class FollowerSurroundings(Protocol):
    """What all fetchers of a broker share."""

    @property
    def local_id(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def allowance(self) -> Allowance: ...

    def broker_epoch(self) -> int: ...
    def settings(self) -> FetchSettings: ...


class _Followed:
    """One partition that is copied."""

    __slots__ = ("asked", "failures", "partition", "place", "resume_s")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.place: Place = (partition.log.topic_id, partition.topic_partition.partition)
        self.asked: Asked | None = None
        """What the leader was last asked for it."""
        self.failures = 0
        self.resume_s = 0.0
        """By the loop's clock: it pauses until then."""


class Fetcher:
    def __init__(
        self, leader: int, send: Callable[[int, Message], Awaitable[Any]], around: FollowerSurroundings
    ) -> None:
        self.leader = leader
        self._send = send
        self._around = around
        self._session = FollowerSession()
        self._followed: dict[TopicPartition, _Followed] = {}
        self._by_place: dict[Place, _Followed] = {}
        self._changed: dict[TopicPartition, None] = {}
        """Whose fetch position the leader may not know: only these are looked at for the next request."""
        self._unwanted: dict[Place, str] = {}
        self._paused: dict[TopicPartition, None] = {}
        self._failures = 0
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"fetch from broker {leader}")

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Copies `partition` from here on; again, if its role has changed."""
        self.remove(partition.topic_partition)
        followed = _Followed(partition)
        self._followed[partition.topic_partition] = followed
        self._by_place[followed.place] = followed
        self._changed[partition.topic_partition] = None
        self._unwanted.pop(followed.place, None)
        # An answer that is on its way will be thrown away: what the leader told with it must be told again.
        self._session.name_again(followed.place)
        self._news.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            del self._by_place[followed.place]
            self._changed.pop(topic_partition, None)
            self._paused.pop(topic_partition, None)
            self._unwanted[followed.place] = topic_partition.topic

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- the loop ---

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except OSError as error:
                logger.info("broker %d cannot be fetched from: %s", self.leader, error)
                await self._back_off()
            except Exception:
                logger.exception("fetching from broker %d failed; it is tried again", self.leader)
                await self._back_off()

    async def _back_off(self) -> None:
        self._session.begin_anew()
        self._failures += 1
        await asyncio.sleep(self._pause_s(self._failures))

    def _pause_s(self, failures: int) -> float:
        backoff_ms = self._around.settings().replica_fetch_backoff_ms
        return min(PAUSE_MS_MIN << min(failures - 1, 10), backoff_ms) / 1000

    async def _fetch_once(self) -> None:
        resume_s = self._resume_paused()
        if len(self._paused) == len(self._followed):
            await self._wait_for_news(resume_s)
            return
        request = self._request(resume_s)
        response = await self._send(self.leader, request)
        if not isinstance(response, FetchResponse):
            raise ConnectionError(f"it answered a fetch with {type(response).__name__}")
        if response.error_code in _SESSION_LOST and not self._session.is_new:
            self._session.begin_anew()
            return
        if response.error_code:
            raise ConnectionError(f"it refused a fetch with error {response.error_code}")
        self._session.answered(response)
        self._failures = 0
        await self._take_all(response)

    async def _wait_for_news(self, resume_s: float | None) -> None:
        """Everything pauses, or there is nothing to fetch."""
        self._news.clear()
        timer = None if resume_s is None else self._loop.call_at(resume_s, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # --- asking ---

    def _resume_paused(self) -> float | None:
        """Takes those up again whose pause is over; tells when the next one's is."""
        now_s = self._loop.time()
        next_s: float | None = None
        for topic_partition in tuple(self._paused):
            followed = self._followed[topic_partition]
            if followed.resume_s <= now_s:
                self._paused.pop(topic_partition, None)
                self._unwanted.pop(followed.place, None)
                self._changed[topic_partition] = None
            elif next_s is None or followed.resume_s < next_s:
                next_s = followed.resume_s
        return next_s

    def _request(self, resume_s: float | None) -> FetchRequest:
        settings = self._around.settings()
        max_bytes = settings.replica_fetch_max_bytes
        looked_at = self._followed if self._session.is_new else self._changed
        wanted = []
        for topic_partition in looked_at:
            if topic_partition in self._paused:
                continue
            followed = self._followed[topic_partition]
            log = followed.partition.log
            followed.asked = Asked(
                log.log_end_offset,
                followed.partition.leader_epoch,
                log.last_leader_epoch,
                log.log_start_offset,
                max_bytes,
            )
            wanted.append((followed.place, topic_partition.topic, followed.asked))
        topics, forgotten = self._session.tell(wanted, self._unwanted.items())
        self._changed.clear()
        self._unwanted.clear()
        wait_ms = settings.replica_fetch_wait_max_ms
        if resume_s is not None:
            wait_ms = max(min(wait_ms, int((resume_s - self._loop.time()) * 1000) + 1), 0)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._around.local_id, replica_epoch=self._around.broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    # --- taking what comes ---

    async def _take_all(self, response: FetchResponse) -> None:
        taken: list[Partition] = []
        partitions = size = 0
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._by_place.get((topic.topic_id, data.partition_index))
                if followed is None or followed.partition.topic_partition in self._paused:
                    continue
                # Whatever came, the next request says anew where we are.
                self._changed[followed.partition.topic_partition] = None
                if not self._is_current(followed):
                    continue
                size += self._take(followed, data)
                taken.append(followed.partition)
                partitions += 1
                if size >= BYTES_PER_TURN or partitions % PARTITIONS_PER_TURN == 0:
                    size = 0
                    await asyncio.sleep(0)
        await self._make_durable(taken)

    def _is_current(self, followed: _Followed) -> bool:
        """Whether an answer to what was asked can be used. After a change of role the partition is added anew."""
        partition, asked = followed.partition, followed.asked
        return (
            asked is not None
            and partition.leader == self.leader
            and partition.leader_epoch == asked.leader_epoch
            and partition.log.log_end_offset == asked.fetch_offset
        )

    def _take(self, followed: _Followed, data: PartitionData) -> int:
        """Gives how much work it was, in bytes appended."""
        size = 0
        partition = followed.partition
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._start_over(partition, data)
            elif data.error_code:
                self._refused(followed, data.error_code)
                return 0
            elif data.diverging_epoch.epoch >= 0:
                partition.cut_back(EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
                size = BYTES_PER_TURN  # a cut waits for the disk: time for others
            else:
                size = self._append(followed, data)
        except BrokerError as error:
            logger.error("%s cannot be copied from broker %d: %s", partition.topic_partition, self.leader, error)
            self._pause(followed)
        else:
            followed.failures = 0
        return size

    def _append(self, followed: _Followed, data: PartitionData) -> int:
        partition, around = followed.partition, self._around
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview), "what comes from the network is bytes"
        high_watermark, log_start = data.high_watermark, data.log_start_offset
        size = partition.followed(records, high_watermark, log_start, around.clock.now_ms())
        listed = partition.log.config.follower_replication_throttled_replicas
        if size and listed and partition.log.log_end_offset < high_watermark:
            place = partition.topic_partition
            if is_throttled(listed, place.partition, around.local_id):
                self._throttle(followed, size)
        return size

    def _throttle(self, followed: _Followed, size: int) -> None:
        allowance, now_ms = self._around.allowance, round(self._around.clock.monotonic() * 1000)
        allowance.set_rate(self._around.settings().follower_replication_throttled_rate)
        allowance.spend(size, now_ms)
        wait_ms = allowance.wait_ms(now_ms)
        if wait_ms:
            self._pause_for(followed, wait_ms / 1000)

    def _start_over(self, partition: Partition, data: PartitionData) -> None:
        """What we ask for is not in the leader's log. It begins later: its records before are deleted."""
        log = partition.log
        if data.log_start_offset > log.log_end_offset or (log.last_leader_epoch < 0 <= data.log_start_offset):
            partition.start_over(data.log_start_offset)
            return
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {log.log_end_offset} is out of range at the leader, whose log starts at {data.log_start_offset}",
        )

    def _refused(self, followed: _Followed, code: int) -> None:
        level = logging.DEBUG if code in _PASSES_SOON else logging.WARNING
        place = followed.partition.topic_partition
        logger.log(level, "%s: broker %d refused a fetch with error %d", place, self.leader, code)
        self._pause(followed)

    def _pause(self, followed: _Followed) -> None:
        followed.failures += 1
        self._pause_for(followed, self._pause_s(followed.failures))

    def _pause_for(self, followed: _Followed, pause_s: float) -> None:
        """The leader is not asked for it meanwhile."""
        topic_partition = followed.partition.topic_partition
        followed.resume_s = self._loop.time() + pause_s
        self._paused[topic_partition] = None
        self._changed.pop(topic_partition, None)
        self._unwanted[followed.place] = topic_partition.topic

    async def _make_durable(self, taken: list[Partition]) -> None:
        """The next fetch promises that we have what came with this one: where fsync counts, it must be on disk."""
        done: asyncio.Future[None] = self._loop.create_future()

        def finish() -> None:
            if not done.done():  # nobody waits any more once the fetcher is stopped
                done.set_result(None)

        wait = ProduceWait(finish)
        for partition in taken:
            partition.await_durable(wait)
        if wait.outstanding:
            await done
