"""One life of a transactional producer, in either dialect, which repeats itself as real ones do.

Before transaction.version 2 a producer puts partitions into its transaction itself, keeps its epoch from one
transaction to the next, and asks for a higher one after a batch whose fate it does not know. Since then, partitions are
put into it by their leaders, and every end raises the epoch (KIP-890). One that takes part in two-phase commits writes
down elsewhere how its transaction shall end, and its next life goes by that (KIP-939).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.coordinators.transactions.transaction import NOBODY, Identity
from tidelog.errors import BrokerError, ErrorCode, PeerUnreachable
from tidelog.records.header import NO_SEQUENCE
from tidelog.testing.transaction_sim.broker import BUMPS_EPOCHS, Attempt, FromClient, ProduceAsk
from tidelog.testing.transaction_sim.partition import TOPIC
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tidelog.testing.sim.timeline import SimLoop
    from tidelog.testing.transaction_sim.ledger import Ledger, Life, Sent, Txn
    from tidelog.testing.transaction_sim.partition import SimPartition
    from tidelog.types import TopicPartition

_PAUSE_S = 0.05
_ATTEMPT_S = 0.6
_DELIVERY_S = 2.5
_TRIED_AGAIN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Beside those that any client repeats: the batch before may still be on its way."""
_ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Of a partition: what it means, the coordinator will say when it is asked to abort."""


class Fenced(Exception):  # noqa: N818 - named for what happened
    """There is nothing left to do for this life."""


class Undelivered(Exception):  # noqa: N818 - named for what happened
    """A batch may or may not have arrived: the transaction has to be aborted."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How one transactional id is used."""

    transactional_id: str
    transaction_version: int
    two_phase: bool = False
    timeout_ms: int = 3000
    mixed: bool = False
    """Each life speaks a dialect of its own choice."""
    tidy: bool = False
    """Its requests to coordinators die with their connections. Then nothing it does can turn against itself."""
    strays: bool = False
    """Whether old requests of old dialects may come after newer ones, against which those have no defence."""


class Surroundings(Protocol):
    """What a producer finds around itself."""

    ledger: Ledger
    decisions: dict[str, Txn]
    """How prepared transactions of two-phase commits shall end, by transactional id: kept where no crash reaches."""
    claims: dict[str, Life]
    """Who may decide that."""
    stopping: bool

    @property
    def places(self) -> Sequence[TopicPartition]: ...

    def note(self, who: str, what: str) -> None: ...

    def partition(self, place: TopicPartition) -> SimPartition: ...

    def ask_coordinator(self, asker: SimLoop, request: Any, *, forgotten: bool) -> asyncio.Future[Any]: ...

    def ask_leader(
        self, asker: SimLoop, place: TopicPartition, request: Any, within_s: float
    ) -> asyncio.Future[Any]: ...


class SimProducer:
    def __init__(self, world: Surroundings, loop: SimLoop, habits: Habits, chance: random.Random) -> None:
        self.loop = loop
        self.habits = habits
        self.life: Life = world.ledger.born(habits.transactional_id)
        self.over = False
        self._world = world
        self._chance = chance
        self._identity = NOBODY
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)
        self._begun_s = 0.0
        self._bumps = habits.transaction_version >= BUMPS_EPOCHS

    def start(self) -> None:
        self.loop.create_task(self._live())

    async def _live(self) -> None:
        try:
            await self._initialise()
            while not self._world.stopping:
                await self._transact()
                await asyncio.sleep(self._chance.expovariate(5.0))
        except Fenced as reason:
            self._note(f"is over: {reason}")
            if self.habits.tidy and not self.habits.two_phase and not self._has_timed_out():
                self._world.ledger.was_fenced(self.life, str(reason))
        self.over = True

    def _has_timed_out(self) -> bool:
        return self.loop.time() - self._begun_s >= self.habits.timeout_ms / 1000

    def _note(self, what: str) -> None:
        self._world.note(self.life.name, what)

    # --- who it is ---

    async def _initialise(self) -> None:
        two_phase = self.habits.two_phase
        self._world.claims[self.habits.transactional_id] = self.life
        reply = await self._init(NOBODY, keep_prepared=two_phase)
        if two_phase:
            self._check_claim()  # it may have taken long to get here
            await self._finish_prepared(Identity(reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch))

    async def _init(self, claimed: Identity, *, keep_prepared: bool = False) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.habits.transactional_id,
            transaction_timeout_ms=self.habits.timeout_ms,
            producer_id=claimed.producer_id,
            producer_epoch=claimed.epoch,
            enable2_pc=self.habits.two_phase,
            keep_prepared_txn=keep_prepared,
        )
        reply: InitProducerIdResponse = await self._coordinate(request)
        self._become(Identity(reply.producer_id, reply.producer_epoch))
        self._world.ledger.took_over(self.life, self._identity)
        return reply

    def _become(self, identity: Identity) -> None:
        self._note(f"goes by {identity.producer_id}/{identity.epoch}")
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity

    async def _finish_prepared(self, ongoing: Identity) -> None:
        """Ends what an earlier life had prepared, as it was decided elsewhere; or what it had not got so far."""
        decided = self._world.decisions.get(self.habits.transactional_id)
        mine = decided if decided is not None and decided.identity == ongoing else None
        if ongoing != NOBODY:
            self._note(f"finds {ongoing.producer_id}/{ongoing.epoch} open, decided: {mine}")
            await self._end(mine, committed=mine is not None and mine.must_commit)

    # --- transactions ---

    async def _transact(self) -> None:
        txn = self._world.ledger.begin(self.life, self._identity)
        self._begun_s = self.loop.time()
        places = self._chance.sample(self._world.places, self._chance.randint(1, min(3, len(self._world.places))))
        self._note(f"begins {txn.number} on {', '.join(map(str, places))}")
        delivered = await self._send_all(txn, places)
        if not txn.sent:
            return
        if self._chance.random() < 0.1:
            await asyncio.sleep(self._chance.uniform(0.0, 1.5 * self.habits.timeout_ms / 1000))
        committed = delivered and self._chance.random() < 0.75
        if self.habits.two_phase and delivered:
            self._decide(txn, committed=committed)
        await self._end(txn, committed=committed)
        if not delivered and not self._bumps:
            await self._init(self._identity)

    def _decide(self, txn: Txn, *, committed: bool) -> None:
        """Writes down elsewhere how the prepared transaction shall end."""
        self._check_claim()
        self._world.decisions[self.habits.transactional_id] = txn
        txn.must_commit = committed

    def _check_claim(self) -> None:
        if self._world.claims[self.habits.transactional_id] is not self.life:
            raise Fenced("another one decides")

    async def _send_all(self, txn: Txn, places: Sequence[TopicPartition]) -> bool:
        """Whether all has arrived."""
        rounds = self._chance.randint(1, 2)
        try:
            for number in range(rounds):
                chosen = places[number::rounds] or places[:1]
                if not self._bumps:
                    await self._add(chosen)
                batches = [place for place in chosen for _ in range(self._chance.choice((1, 1, 2, 3)))]
                sending = [self._send(self._world.ledger.send(txn, place)) for place in batches]
                outcomes = await asyncio.gather(*sending, return_exceptions=True)
                for outcome in sorted((each for each in outcomes if each is not None), key=_severity):
                    raise outcome
                await asyncio.sleep(self._chance.expovariate(20.0))
        except Undelivered as reason:
            self._note(f"gives {txn.number} up: {reason}")
            return False
        return True

    async def _add(self, places: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        await self._coordinate(
            AddPartitionsToTxnTransaction(
                transactional_id=self.habits.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
            )
        )

    async def _send(self, sent: Sent) -> None:
        """Until it is acknowledged. Batches of one partition are under way together."""
        sequence = NO_SEQUENCE
        if sent.place.topic == TOPIC:
            sequence = self._sequences[sent.place]
            self._sequences[sent.place] += 1
        habits = self.habits
        ask = ProduceAsk(habits.transactional_id, self._identity, sequence, sent, habits.transaction_version)
        # An offset has no sequence, so before version 2 nothing tells a stray one from that of the next transaction.
        mortal = sequence == NO_SEQUENCE and not self._bumps and not habits.strays
        give_up_s = self.loop.time() + _DELIVERY_S
        code = ErrorCode.NONE
        while self.loop.time() < give_up_s:
            attempt = Attempt() if mortal else None
            try:
                reply = await self._world.ask_leader(self.loop, sent.place, ask._replace(attempt=attempt), _ATTEMPT_S)
            except PeerUnreachable:
                continue
            finally:
                if attempt is not None:
                    attempt.is_over = True
            if not isinstance(reply, BrokerError):
                return
            code = reply.code
            if code in _ABORTABLE:
                break
            if not code.retriable and code not in _TRIED_AGAIN:
                raise Fenced(f"{code.name} for {sent}")
            await asyncio.sleep(_PAUSE_S)
        raise Undelivered(f"{code.name} for {sent}")

    async def _end(self, txn: Txn | None, *, committed: bool) -> None:
        ledger = self._world.ledger
        self._note(f"asks to {'commit' if committed else 'abort'} {txn.number if txn else 'what it found'}")
        if committed and txn is not None:
            ledger.ask_commit(txn)
        reply: EndTxnResponse = await self._coordinate(
            EndTxnRequest(
                transactional_id=self.habits.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                committed=committed,
            )
        )
        if txn is not None:
            self._note(f"is told that {txn.number} is {'committed' if committed else 'aborted'}")
            ledger.was_told(txn, committed=committed, by=self.life)
        if self._bumps:
            self._become(Identity(reply.producer_id, reply.producer_epoch))

    async def _coordinate(self, request: Any) -> Any:
        """Asks the coordinator, wherever it is, until it says something definite."""
        # Before version 2 nothing tells a stray end from that of the next transaction.
        stray = self.habits.strays or self._bumps or not isinstance(request, EndTxnRequest)
        forgotten = self.habits.tidy or not stray
        ask = FromClient(request, self.habits.transaction_version if self._bumps else 0)
        while True:
            try:
                reply = await self._world.ask_coordinator(self.loop, ask, forgotten=forgotten)
            except PeerUnreachable:
                continue
            code = _code_of(reply)
            if not code:
                return reply
            if not code.retriable:
                raise Fenced(f"{code.name} for {type(request).__name__}")
            await asyncio.sleep(_PAUSE_S)


def _severity(outcome: BaseException) -> bool:
    return not isinstance(outcome, Fenced)


def _code_of(reply: Any) -> ErrorCode:
    if isinstance(reply, BrokerError):
        return reply.code
    if isinstance(reply, InitProducerIdResponse | EndTxnResponse):
        return ErrorCode(reply.error_code)
    codes = {each.partition_error_code for topic in reply.topic_results for each in topic.results_by_partition}
    return ErrorCode(max(codes, default=0))
