"""Has leaders write down how transactions ended: what the transaction coordinator decided goes to every partition.

Markers for the partitions of one broker go together, in one request at a time. What could not be written is tried
again, for as long as it takes and wherever its partition is led then: an outcome that is stored must reach everyone.
Writing a marker twice does no harm. Partitions of topics that are gone need none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.types import TopicPartition
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.clock import Clock
    from tidelog.coordinators.transactions.shard import SendMarkers
    from tidelog.wire.declare import Message

logger = logging.getLogger(__name__)

MARKERS_PER_REQUEST_MAX = 500
RETRY_S_MIN = 0.02
RETRY_S_MAX = 0.5
UNKNOWN_TOPIC_PATIENCE_S = 5.0
"""How long a topic may be unknown before it counts as deleted: this broker may not have been told of it yet."""

DELETED_KEPT_MAX = 10_000
NO_LEADER = -1

_SETTLED = frozenset(
    {
        ErrorCode.NONE,
        # The partition has gone on to a later epoch, which it could only once this transaction had ended there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""There is nothing left to be written. Everything else is tried again."""


class _Job:
    """One transaction whose outcome is being written down."""

    __slots__ = ("attempts", "coordinator_epoch", "effect", "left", "unknown_since_s")

    def __init__(self, effect: SendMarkers, coordinator_epoch: int | None) -> None:
        self.effect = effect
        self.coordinator_epoch = coordinator_epoch
        """In which it was decided. If this broker coordinates again later, others have gone on meanwhile."""
        self.left = set(effect.partitions)
        self.attempts = 0
        self.unknown_since_s: float | None = None


_Parcel = dict[_Job, set[TopicPartition]]
"""What one broker is to write."""


class Markers:
    def __init__(
        self,
        send: Callable[[int, Message], Awaitable[Any]],
        leader_of: Callable[[TopicPartition], int | None],
        epoch_of: Callable[[str], int | None],
        on_written: Callable[[SendMarkers], None],
        clock: Clock,
    ) -> None:
        """`leader_of` gives a partition's leader, -1 while there is none, None for a topic that is not known.
        `epoch_of` gives the epoch of the coordinator of a transactional id, None if that is no longer this broker."""
        self._send = send
        self._leader_of = leader_of
        self._epoch_of = epoch_of
        self._on_written = on_written
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._queues: defaultdict[int, _Parcel] = defaultdict(dict)
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._retries: set[asyncio.TimerHandle] = set()
        self._deleted: dict[str, None] = {}
        """Topics that were deleted, the latest last."""

    def __len__(self) -> int:
        """Transactions whose outcome has not reached everyone yet."""
        return len(self._jobs)

    def write(self, effect: SendMarkers) -> None:
        known = self._jobs.get(effect.transactional_id)
        epoch = self._epoch_of(effect.transactional_id)
        if known is not None and known.effect == effect and known.coordinator_epoch == epoch:
            return  # it was loaded again while its markers are on their way
        job = self._jobs[effect.transactional_id] = _Job(effect, epoch)
        self._dispatch(job, job.left)

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Transactional ids that are coordinated elsewhere now. What is decided of them later must not meet what this
        broker had begun: an older producer's next transaction can look the same."""
        for transactional_id in [each for each in self._jobs if is_lost(each)]:
            del self._jobs[transactional_id]

    def topics_deleted(self, names: Iterable[str]) -> None:
        for name in names:
            self._deleted.pop(name, None)
            self._deleted[name] = None
        while len(self._deleted) > DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]

    async def stop(self) -> None:
        for timer in self._retries:
            timer.cancel()
        tasks = list(self._senders.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- finding those who write ---

    def _dispatch(self, job: _Job, places: Iterable[TopicPartition]) -> None:
        transactional_id = job.effect.transactional_id
        if self._is_void(job):
            return
        later: list[TopicPartition] = []
        for place in sorted(places):
            leader = self._leader_of(place)
            if leader is None and self._is_gone(job, place):
                logger.info("%s is gone: transaction of %r needs no marker there", place, transactional_id)
                job.left.discard(place)
            elif leader is None or leader == NO_LEADER:
                later.append(place)
            else:
                self._queues[leader].setdefault(job, set()).add(place)
                self._wake(leader)
        if later:
            self._try_again(job, later)
        self._settle(job)

    def _is_void(self, job: _Job) -> bool:
        """Whoever has come to coordinate it since then goes on, be it this broker again."""
        transactional_id = job.effect.transactional_id
        if self._jobs.get(transactional_id) is not job:
            return True
        if self._epoch_of(transactional_id) == job.coordinator_epoch is not None:
            return False
        del self._jobs[transactional_id]
        return True

    def _is_gone(self, job: _Job, place: TopicPartition) -> bool:
        if place.topic in self._deleted:
            return True
        now_s = self._clock.monotonic()
        if job.unknown_since_s is None:
            job.unknown_since_s = now_s
        return now_s - job.unknown_since_s >= UNKNOWN_TOPIC_PATIENCE_S

    def _try_again(self, job: _Job, places: Iterable[TopicPartition]) -> None:
        pause_s = min(RETRY_S_MIN * 2 ** min(job.attempts, 10), RETRY_S_MAX)
        job.attempts += 1
        remaining = set(places)

        def due() -> None:
            self._retries.discard(timer)
            self._dispatch(job, remaining)

        timer = asyncio.get_running_loop().call_later(pause_s, due)
        self._retries.add(timer)

    def _settle(self, job: _Job) -> None:
        if not job.left and not self._is_void(job):
            del self._jobs[job.effect.transactional_id]
            self._on_written(job.effect)

    # --- sending: one request at a time to each broker ---

    def _wake(self, broker: int) -> None:
        if broker not in self._senders:
            task = asyncio.get_running_loop().create_task(self._send_all(broker), name=f"markers for broker {broker}")
            self._senders[broker] = task

    async def _send_all(self, broker: int) -> None:
        try:
            while parcel := self._next_parcel(broker):
                try:
                    await self._send_parcel(broker, parcel)
                except PeerUnreachable as error:
                    logger.warning("markers for broker %d will be tried again: %s", broker, error)
                    self._return(parcel)
                except Exception:
                    logger.exception("markers for broker %d could not be sent; they are tried again", broker)
                    self._return(parcel)
        finally:
            self._senders.pop(broker, None)

    def _next_parcel(self, broker: int) -> _Parcel:
        queue = self._queues[broker]
        parcel: _Parcel = {}
        while queue and len(parcel) < MARKERS_PER_REQUEST_MAX:
            job = next(iter(queue))
            places = queue.pop(job)
            if not self._is_void(job):
                parcel[job] = places
        if not queue:
            del self._queues[broker]
        return parcel

    async def _send_parcel(self, broker: int, parcel: _Parcel) -> None:
        markers = [_marker(job, places) for job, places in parcel.items()]
        reply = await self._send(broker, WriteTxnMarkersRequest(markers=markers))
        codes = _codes(reply)
        for job, places in parcel.items():
            by_place = codes.get(job.effect.producer_id, {})
            self._take_answer(job, {place: by_place.get(place) for place in places})

    def _take_answer(self, job: _Job, codes: dict[TopicPartition, int | None]) -> None:
        if self._is_void(job):
            return
        again: list[TopicPartition] = []
        for place, code in codes.items():
            if code in _SETTLED:
                if code:
                    logger.warning("%s took no marker of %r: %s", place, job.effect, ErrorCode(code).name)
                job.left.discard(place)
            elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                logger.warning("transaction of %r is coordinated elsewhere", job.effect.transactional_id)
                del self._jobs[job.effect.transactional_id]
                return
            else:
                again.append(place)
        if again:
            self._try_again(job, again)
        self._settle(job)

    def _return(self, parcel: _Parcel) -> None:
        for job, places in parcel.items():
            self._try_again(job, places)


def _marker(job: _Job, places: Iterable[TopicPartition]) -> WritableTxnMarker:
    effect, epoch = job.effect, job.coordinator_epoch
    assert epoch is not None, "whoever sends it coordinates"
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(places):
        topics[topic].append(partition)
    return WritableTxnMarker(
        producer_id=effect.producer_id,
        producer_epoch=effect.producer_epoch,
        transaction_result=effect.committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=epoch,
        transaction_version=effect.transaction_version,
    )


def _codes(reply: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, result.partition_index): result.error_code
            for topic in marker.topics
            for result in topic.partitions
        }
        for marker in reply.markers
    }
