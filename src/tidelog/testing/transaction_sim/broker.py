"""One simulated broker: the real coordination of transactions, and leadership of some partitions.

What `handlers/produce.py`, `handlers/txn_offset_commit.py` and `handlers/write_txn_markers.py` do around the logs is
done here in few lines; what they ask is real.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from tidelog.broker.transaction_coordination import TransactionCoordination
from tidelog.controller.image import TRANSACTIONS_TOPIC
from tidelog.coordinators.transactions.transaction import Identity
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.control import Marker, MarkerType
from tidelog.testing.transaction_sim.partition import header_of
from tidelog.types import TopicPartition
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidelog.coordinators.runtime import StateLog
    from tidelog.coordinators.transactions.shard import TransactionShard
    from tidelog.storage.verification import Guard
    from tidelog.testing.sim.sim_clock import SimClock
    from tidelog.testing.sim.timeline import SimLoop
    from tidelog.testing.transaction_sim.ledger import Ledger, Sent
    from tidelog.testing.transaction_sim.partition import SimPartition
    from tidelog.testing.transaction_sim.reign import Reign
    from tidelog.wire.messages.write_txn_markers import WritableTxnMarker

BUMPS_EPOCHS = 2
STATE_PLACE = TopicPartition(TRANSACTIONS_TOPIC, 0)
_SAFE_WITHIN_S = 2.0
_QUESTIONS_MAX = 3


class FromClient(NamedTuple):
    """A request to the coordinator, in the dialect of who asks."""

    request: Any
    transaction_version: int


class Attempt:
    """One request on one connection."""

    is_over = False
    """The connection is closed, and what came over it is not carried out any more."""


class ProduceAsk(NamedTuple):
    """A batch for a partition, or a group's offset for its coordinator."""

    transactional_id: str
    identity: Identity
    sequence: int
    sent: Sent
    transaction_version: int
    attempt: Attempt | None = None
    """None if it may be carried out at any later time."""


class Cluster(Protocol):
    """What a broker knows of the others."""

    ledger: Ledger
    clock: SimClock

    def note(self, who: str, what: str) -> None: ...

    def partition(self, place: TopicPartition) -> SimPartition: ...

    def send(self, asker: SimLoop, broker: int, message: Any) -> Awaitable[Any]: ...


class _Led(NamedTuple):
    """What `TransactionCoordination` needs to know of the partition of the internal topic."""

    topic_partition: TopicPartition
    leader_epoch: int


class _ReignAsLog:
    """Has the coordinator use a reign for its log. Fits `coordinators.coordinator.Onlooker`."""

    def __init__(self, reign: Reign) -> None:
        self._reign = reign

    def follow(self, partition: int, log: StateLog) -> StateLog:  # noqa: ARG002 - there is one of each
        return self._reign

    def resign(self, partition: int) -> None:
        """The next one to lead brings his own."""


class SimBroker:
    def __init__(
        self, number: int, loop: SimLoop, cluster: Cluster, image: Any, settings: Any, producer_ids: Any
    ) -> None:
        self.number = number
        self.loop = loop
        self._cluster = cluster
        send = partial(cluster.send, loop)
        self.coordination = TransactionCoordination(
            image, settings, cast("Any", None), producer_ids, cluster.clock, send_markers=send, send_questions=send
        )
        self._reign: Reign | None = None

    # --- coordinating ---

    def coordinate(self, reign: Reign) -> None:
        """This broker leads the internal topic from now on."""
        self.loop.call_soon(self._coordinate, reign)

    def _coordinate(self, reign: Reign) -> None:
        self._reign = reign
        self.coordination.coordinator.onlooker = _ReignAsLog(reign)
        self.coordination.leads(cast("Any", _Led(STATE_PLACE, reign.epoch)))

    def resign(self, reign: Reign) -> None:
        """It is told that another one leads the internal topic."""
        self.loop.call_soon(self._resign, reign)

    def _resign(self, reign: Reign) -> None:
        if self._reign is reign:
            self._reign = None
            self.coordination.loses(cast("Any", _Led(STATE_PLACE, reign.epoch)))

    @property
    def shard(self) -> TransactionShard | None:
        """What it knows as a coordinator, if it is one and has loaded it."""
        runtime = self.coordination.coordinator.at(STATE_PLACE.partition)
        return runtime.shard if runtime is not None and runtime.active else None

    # --- serving ---

    def serve(self, request: Any, reply: Callable[[Any], None]) -> None:
        match request:
            case FromClient():
                self._ask_shard(request.request, request.transaction_version, reply)
            case AddPartitionsToTxnRequest():
                self._answer_questions(request, reply)
            case WriteTxnMarkersRequest():
                self._write_markers(request, reply)
            case ProduceAsk():
                self.loop.create_task(self._produce(request, reply))

    def _ask_shard(self, request: Any, version: int, reply: Callable[[Any], None]) -> None:
        def answer(result: Any) -> None:
            if isinstance(request, InitProducerIdRequest) and isinstance(result, InitProducerIdResponse):
                self._note_identity(request, result)
            reply(result)

        try:
            self.coordination.coordinator.shard_of(request.transactional_id).ask(request, version, answer)
        except BrokerError as error:
            reply(error)

    def _note_identity(self, request: InitProducerIdRequest, result: InitProducerIdResponse) -> None:
        if not result.error_code:
            assert request.transactional_id is not None
            claimed = Identity(request.producer_id, request.producer_epoch)
            given = Identity(result.producer_id, result.producer_epoch)
            self._cluster.ledger.identity_given(request.transactional_id, claimed, given)

    def _answer_questions(self, request: AddPartitionsToTxnRequest, reply: Callable[[Any], None]) -> None:
        results: list[Any] = []

        def answer(result: Any) -> None:
            if isinstance(result, BrokerError):
                reply(AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=result.code))
                return
            results.append(result)
            if len(results) == len(request.transactions):
                reply(AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results))

        for each in request.transactions:
            self._ask_shard(each, BUMPS_EPOCHS, answer)

    async def _produce(self, ask: ProduceAsk, reply: Callable[[Any], None]) -> None:
        try:
            await self._append(ask)
        except BrokerError as error:
            reply(error)
        else:
            reply(ErrorCode.NONE)

    async def _append(self, ask: ProduceAsk) -> None:
        place = ask.sent.place
        partition = self._cluster.partition(place)
        partition.check_leader(self.number)
        guard = await self._verified(ask, partition)
        partition.check_leader(self.number)
        if ask.attempt is not None and ask.attempt.is_over:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "nobody waits for it any more")
        self._note(place, f"takes {ask.sent} with sequence {ask.sequence}")
        header = header_of(ask.identity, ask.sequence)
        offset = partition.append(header, ask.sent, guard, self._cluster.clock.now_ms())
        await self._in_time(partition.safe(offset))

    async def _verified(self, ask: ProduceAsk, partition: SimPartition) -> Guard | None:
        """Leave to begin the transaction in the partition; asked for again when a marker overtook the answer."""
        asked_with: Guard | None = None
        for _ in range(_QUESTIONS_MAX):
            now_ms = self._cluster.clock.now_ms()
            guard = partition.producers.verification(*ask.identity, ask.sequence, now_ms)
            if guard is None or guard is asked_with:
                return guard
            asked_with = guard
            add = ask.transaction_version >= BUMPS_EPOCHS
            place = partition.place
            answers = await self.coordination.verify(ask.transactional_id, *ask.identity, [place], add=add)
            if code := answers[place]:
                raise BrokerError(code, "the transaction's coordinator does not vouch for it")
        raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "markers overtook all questions: try again")

    def _write_markers(self, request: WriteTxnMarkersRequest, reply: Callable[[Any], None]) -> None:
        """All in one step; the answer waits until they are safe."""
        response = WriteTxnMarkersResponse(markers=[])
        written: list[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[None]]] = []
        for marker in request.markers:
            topics: list[WritableTxnMarkerTopicResult] = []
            response.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
            for topic in marker.topics:
                results: list[WritableTxnMarkerPartitionResult] = []
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
                for index in topic.partition_indexes:
                    result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
                    results.append(result)
                    partition = self._cluster.partition(TopicPartition(topic.name, index))
                    try:
                        written.append((result, partition.safe(self._write_marker(marker, partition))))
                    except BrokerError as error:
                        result.error_code = error.code
        self.loop.create_task(self._answer_when_safe(written, response, reply))

    def _write_marker(self, asked: WritableTxnMarker, partition: SimPartition) -> int:
        marker = Marker(MarkerType.COMMIT if asked.transaction_result else MarkerType.ABORT, asked.coordinator_epoch)
        identity = Identity(asked.producer_id, asked.producer_epoch)
        try:
            partition.check_leader(self.number)
            now_ms = self._cluster.clock.now_ms()
            offset = partition.append_marker(marker, identity, asked.transaction_version, now_ms)
        except BrokerError as error:
            self._note(partition.place, f"refuses {_shown(marker, identity)}: {error.code.name}")
            raise
        self._note(partition.place, f"takes {_shown(marker, identity)}")
        return offset

    async def _answer_when_safe(
        self,
        written: Sequence[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[None]]],
        response: WriteTxnMarkersResponse,
        reply: Callable[[Any], None],
    ) -> None:
        for result, safe in written:
            try:
                await self._in_time(safe)
            except BrokerError as error:
                result.error_code = error.code
        reply(response)

    def _note(self, place: TopicPartition, what: str) -> None:
        self._cluster.note(str(place), what)

    async def _in_time(self, safe: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait_for(safe, _SAFE_WITHIN_S)
        except TimeoutError:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "not yet safe: it may still become so") from None


def _shown(marker: Marker, identity: Identity) -> str:
    return f"{marker.type.name} of {identity.producer_id}/{identity.epoch} by coordinator {marker.coordinator_epoch}"
