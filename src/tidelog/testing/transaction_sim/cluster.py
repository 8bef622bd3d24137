"""The machines of a run and what they share: brokers, partitions, the coordinator's log, producers, the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from tidelog.broker.transaction_coordination import TRANSACTION_RECORDS
from tidelog.coordinators.decision import StoredRecord
from tidelog.coordinators.transactions.transaction import VALUE_VERSION, Identity, Transaction
from tidelog.testing.sim.chance import Chance
from tidelog.testing.sim.sim_clock import SimClock
from tidelog.testing.sim.timeline import SimLoop, Timeline
from tidelog.testing.sim.trace import Trace
from tidelog.testing.transaction_sim.broker import STATE_PLACE, SimBroker
from tidelog.testing.transaction_sim.ledger import FIRST_NEW_ID, Ledger, Life, Txn, Violation
from tidelog.testing.transaction_sim.network import CALM, Network
from tidelog.testing.transaction_sim.partition import TOPIC, SimPartition
from tidelog.testing.transaction_sim.producer import Habits, SimProducer
from tidelog.testing.transaction_sim.reader import CommittedReader
from tidelog.testing.transaction_sim.reign import Reign
from tidelog.types import TopicPartition
from tidelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from tidelog.testing.transaction_sim.shape import Shape

OFFSETS_PLACE = TopicPartition("__consumer_offsets", 0)
_PATIENCE_S = 1.0


@dataclass(slots=True)
class _Topic:
    partitions: Sequence[Any]


@dataclass(slots=True)
class _State:
    """The partition of the internal topic, as brokers know it."""

    leader: int


@dataclass(slots=True)
class _Image:
    topics: dict[str, _Topic]


@dataclass(frozen=True, slots=True)
class _BrokerSettings:
    """Those of `config.broker.BrokerConfig` that matter here."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = True
    message_max_bytes: int = 1_048_588
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100


@dataclass(frozen=True, slots=True)
class _Settings:
    broker: _BrokerSettings


class ProducerIds:
    """New ones for ever, but not at every moment."""

    def __init__(self) -> None:
        self.empty = False
        self._numbers = count(FIRST_NEW_ID)

    def take_now(self) -> int | None:
        return None if self.empty else next(self._numbers)

    def refill(self) -> None:
        self.empty = False


class SimCluster:
    def __init__(self, seed: int, shape: Shape, echo: Callable[[str], None] | None = None) -> None:
        self.chance = Chance(seed)
        self.timeline = Timeline()
        self.clock = SimClock(self.timeline)
        self.trace = Trace(echo)
        self.shape = shape
        self.loops: list[SimLoop] = []
        self.ledger = Ledger(lambda: self.timeline.steps)
        self.network = Network(self.chance.stream("network"), shape.weather)
        self.producer_ids = ProducerIds()
        self.producers: list[SimProducer] = []
        self.decisions: dict[str, Txn] = {}
        self.claims: dict[str, Life] = {}
        self.stopping = False
        self._streams = count()
        self._image = _Image({})
        self._settings = _Settings(_BrokerSettings())
        self.brokers: dict[int, SimBroker] = {number: self._broker(number) for number in range(1, shape.brokers + 1)}
        self._make_partitions()
        self._state = _State(1)
        self._image.topics[STATE_PLACE.topic] = _Topic([self._state])
        self.reign = self._first_reign()
        self.coordinator.coordinate(self.reign)

    # --- beginning ---

    def loop(self, name: str) -> SimLoop:
        loop = SimLoop(self.timeline, name, self.chance.stream(f"loop {len(self.loops)}"))  # type: ignore[abstract]
        self.loops.append(loop)
        return loop

    def _broker(self, number: int) -> SimBroker:
        loop = self.loop(f"broker {number}")
        return SimBroker(number, loop, self, self._image, self._settings, self.producer_ids)

    def _make_partitions(self) -> None:
        chance = self.chance.stream("partitions")
        self._partitions: dict[TopicPartition, SimPartition] = {}
        for place in [*(TopicPartition(TOPIC, number) for number in range(self.shape.partitions)), OFFSETS_PLACE]:
            leader = chance.choice(list(self.brokers))
            self._partitions[place] = SimPartition(place, leader, self.brokers[leader].loop, chance)
        self.places = list(self._partitions)
        for topic in (TOPIC, OFFSETS_PLACE.topic):
            self._image.topics[topic] = _Topic(
                [self._partitions[place] for place in self.places if place.topic == topic]
            )
        self.readers = [CommittedReader(each, self.ledger) for each in self._partitions.values()]
        for reader in self.readers:
            reader.partition.on_stable = partial(self._watch, reader.poll)

    def _first_reign(self) -> Reign:
        batches = []
        for number, (habits, epoch) in enumerate(zip(self.shape.habits, self.shape.first_epochs, strict=False)):
            if epoch >= 0:
                known = Transaction(habits.transactional_id, Identity(number + 1, epoch), timeout_ms=habits.timeout_ms)
                record = StoredRecord(known.key(), 0, known.value(), VALUE_VERSION)
                batches.append((TRANSACTION_RECORDS.encode(record),))
        chance = self.chance.stream("coordinator's log")
        return Reign(self.coordinator.loop, chance, TRANSACTION_RECORDS, 0, batches, len(batches))

    # --- what brokers and producers see ---

    @property
    def coordinator(self) -> SimBroker:
        return self.brokers[self._state.leader]

    def partition(self, place: TopicPartition) -> SimPartition:
        return self._partitions[place]

    def note(self, who: str, what: str) -> None:
        self.trace.note(self.timeline.now, who, what)

    def send(self, asker: SimLoop, broker: int, message: Any) -> asyncio.Future[Any]:
        """From broker to broker."""
        forgotten = isinstance(message, WriteTxnMarkersRequest) and self._has_no_defence(message)
        return self.network.ask(asker, self.brokers[broker], message, _PATIENCE_S, forgotten_when_given_up=forgotten)

    def _has_no_defence(self, request: WriteTxnMarkersRequest) -> bool:
        """Before version 2 nothing tells a stray marker from that of the next transaction."""
        strays = any(each.strays for each in self.shape.habits)
        return not strays and any(marker.transaction_version < 2 for marker in request.markers)

    def ask_coordinator(self, asker: SimLoop, request: Any, *, forgotten: bool) -> asyncio.Future[Any]:
        return self.network.ask(asker, self.coordinator, request, _PATIENCE_S, forgotten_when_given_up=forgotten)

    def ask_leader(self, asker: SimLoop, place: TopicPartition, request: Any, within_s: float) -> asyncio.Future[Any]:
        return self.network.ask(asker, self.brokers[self.partition(place).leader], request, within_s)

    # --- what happens to them ---

    def start_producer(self, habits: Habits) -> SimProducer:
        number = next(self._streams)
        loop = self.loop(f"producer {number}")
        chance = self.chance.stream(f"producer {number}")
        if habits.mixed:
            habits = replace(habits, transaction_version=chance.choice((0, 2)))
        producer = SimProducer(self, loop, habits, chance)
        self.producers.append(producer)
        producer.start()
        return producer

    def move_coordinator(self, number: int, unnoticed_s: float = 0.0) -> None:
        before, reign = self.coordinator, self.reign
        self._state.leader = number
        self.reign = reign.succeeded_by(self.coordinator.loop)
        self.note(
            "coordinator", f"{before.number} -> {number}, {reign.end_offset - self.reign.end_offset} batches lost"
        )
        before.loop.call_later(unnoticed_s, before.resign, reign)
        self.coordinator.coordinate(self.reign)

    def move_leader(self, place: TopicPartition, number: int) -> None:
        partition = self.partition(place)
        cut = partition.lead_by(number, self.brokers[number].loop, self.clock.now_ms())
        self.note(str(place), f"is led by {number}, {cut} batches lost")

    def leave_to_others(self, number: int, another: Callable[[int], int]) -> None:
        for place in self.places:
            if self.partition(place).leader == number:
                self.move_leader(place, another(number))
        if self._state.leader == number:
            self.move_coordinator(another(number), unnoticed_s=0.5)

    def replace_broker(self, number: int, another: Callable[[int], int]) -> None:
        """It dies, others lead instead, and it comes back knowing nothing."""
        self.brokers[number].loop.kill()
        self.leave_to_others(number, another)
        self.brokers[number] = self._broker(number)

    def heal(self) -> None:
        self.note("faults", "all is healed")
        self.network.weather = replace(CALM)
        self.producer_ids.refill()
        self.reign.refuses = False
        self.stopping = True
        for loop in self.loops:
            if loop.frozen:
                loop.thaw()

    def _watch(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Violation as violation:
            self.ledger.violation = self.ledger.violation or violation

    def close(self) -> None:
        for loop in self.loops * 2:  # what is cleaned up may begin something once more
            loop.discard()
