"""Runs a TransactionShard as the runtime does, with a clock that stands still until it is moved.

Every record goes through its bytes before it is applied, and must be one that may follow the one before it.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeVar

from tidelog.coordinators.stored import RecordFormat
from tidelog.coordinators.transactions.config import TransactionConfig
from tidelog.coordinators.transactions.shard import HELD_MS, SendMarkers, TransactionShard
from tidelog.coordinators.transactions.states import PREDECESSORS, TransactionState
from tidelog.coordinators.transactions.transaction import NOBODY, Identity, Transaction
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.stored.transactions import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tidelog.coordinators.decision import Decision
    from tidelog.wire.declare import Struct

FORMAT = RecordFormat({0: (TransactionLogKey, TransactionLogValue)})
TIMEOUT_MS = 60_000
TV1, TV2 = 0, 2

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)

S = TypeVar("S", bound="Struct")


class TransactionDriver:
    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig()
        self._ids = count(1000)
        self.ids_at_hand = True
        self._tickets = count(1)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[SendMarkers] = []
        """Handed out and not dealt with."""
        self.timers: dict[Hashable, int] = {}
        self.replies: dict[int, Struct] = {}
        self.shard = self.new_shard()
        self.perform(self.shard.on_loaded(self.now_ms))

    def new_shard(self) -> TransactionShard:
        return TransactionShard(self.config, self._new_id)

    def _new_id(self) -> int | None:
        return next(self._ids) if self.ids_at_hand else None

    # --- as the runtime does it ---

    def perform(self, decision: Decision) -> None:
        for record in decision.records:
            key, value = FORMAT.encode(record)
            self._check_order(record.key, record.value)
            self.log.append((key, value))
            _apply(self.shard, key, value)
        for timer in decision.timers:
            if timer.at_ms is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.at_ms
        self.replies.update(decision.replies)
        self.effects += decision.effects

    def _check_order(self, key: object, value: object) -> None:
        assert isinstance(key, TransactionLogKey)
        known = self.shard.get(key.transactional_id)
        if isinstance(value, TransactionLogValue) and known is not None:
            assert known.state in PREDECESSORS[TransactionState(value.transaction_status)]
        elif value is None:
            assert known is not None
            assert known.state.idle

    def reload(self, *, compacted: bool = False) -> None:
        """The partition is led elsewhere: there the state is loaded, and what had not been done is begun again."""
        self.shard = self.loaded(compacted=compacted)
        self.timers.clear()
        self.effects.clear()
        self.perform(self.shard.on_loaded(self.now_ms))

    def loaded(self, *, compacted: bool = False) -> TransactionShard:
        shard = self.new_shard()
        for key, value in dict(self.log).items() if compacted else self.log:
            _apply(shard, key, value)
        return shard

    def pass_time(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due, key=lambda each: each[0])
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.perform(self.shard.on_timer(key, self.now_ms))
        self.now_ms = end_ms

    def write_markers(self) -> list[SendMarkers]:
        """Every leader writes what it was sent."""
        sent, self.effects = self.effects, []
        for each in sent:
            self.perform(self.shard.markers_written(each, self.now_ms))
        return sent

    # --- requests ---

    def ask(self, request: Struct, version: int, reply_class: type[S]) -> S:
        ticket = next(self._tickets)
        self.perform(self.shard.handle(ticket, request, version, self.now_ms))
        if ticket not in self.replies:
            self.pass_time(HELD_MS)
        reply = self.replies.pop(ticket)
        assert isinstance(reply, reply_class)
        return reply

    def try_init(
        self,
        name: str = "x",
        claimed: Identity = NOBODY,
        *,
        timeout_ms: int = TIMEOUT_MS,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=claimed.producer_id,
            producer_epoch=claimed.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        return self.ask(request, TV1, InitProducerIdResponse)

    def init(self, name: str = "x", claimed: Identity = NOBODY, *, two_phase: bool = False) -> Identity:
        reply = self.try_init(name, claimed, two_phase=two_phase)
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code)
        return Identity(reply.producer_id, reply.producer_epoch)

    def add(
        self, who: Identity, *places: TopicPartition, name: str = "x", version: int = TV1, verify_only: bool = False
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """The code of all partitions if they have the same, as they must unless they are only verified."""
        request = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition]) for place in places],
        )
        reply = self.ask(request, version, AddPartitionsToTxnResult)
        codes = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in reply.topic_results
            for each in topic.results_by_partition
        }
        assert list(codes) == list(places)
        if len(set(codes.values())) == 1:
            return next(iter(codes.values()))
        assert verify_only
        return codes

    def try_end(self, who: Identity, *, commit: bool, name: str = "x", version: int = TV1) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name, producer_id=who.producer_id, producer_epoch=who.epoch, committed=commit
        )
        return self.ask(request, version, EndTxnResponse)

    def end(self, who: Identity, *, commit: bool, name: str = "x", version: int = TV1) -> Identity:
        reply = self.try_end(who, commit=commit, name=name, version=version)
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code)
        return Identity(reply.producer_id, reply.producer_epoch)

    def refused_end(self, who: Identity, *, commit: bool, name: str = "x", version: int = TV1) -> ErrorCode:
        reply = self.try_end(who, commit=commit, name=name, version=version)
        if reply.error_code:
            assert (reply.producer_id, reply.producer_epoch) == NOBODY
        return ErrorCode(reply.error_code)

    def known(self, name: str = "x") -> Transaction:
        found = self.shard.get(name)
        assert found is not None
        return found

    def state(self, name: str = "x") -> TransactionState:
        return self.known(name).state

    def age(self, epoch: int, name: str = "x") -> Identity:
        """As if the id had been taken over often: its holder has this epoch."""
        known = self.known(name)
        value = known.value()
        value.producer_epoch = epoch
        self.shard.apply(known.key(), value)
        return Identity(value.producer_id, epoch)


def _apply(shard: TransactionShard, key: bytes, value: bytes | None) -> None:
    decoded = FORMAT.decode(key, value)
    assert decoded is not None
    shard.apply(*decoded)
