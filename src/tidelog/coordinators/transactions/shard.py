"""All transactional ids whose state is on one partition of `__transaction_state`.

Requests are answered here; records, timers and markers to be written are what comes of them. Nothing here raises: every
request gets a reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.coordinators.decision import Decision
from tidelog.coordinators.transactions.adding import add, verify
from tidelog.coordinators.transactions.describe import described, listed
from tidelog.coordinators.transactions.ending import end, fenced
from tidelog.coordinators.transactions.initialising import initialise
from tidelog.coordinators.transactions.states import TransactionState
from tidelog.coordinators.transactions.transaction import NO_EPOCH, NO_ID, NOBODY, VALUE_VERSION, Identity, Transaction
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.stored.transactions import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from tidelog.coordinators.decision import Ticket
    from tidelog.coordinators.decision import Transaction as ClientTransaction
    from tidelog.coordinators.transactions.config import TransactionConfig
    from tidelog.wire.declare import Message, Struct

NO_ID_YET_PAUSE_MS = 1000
"""Until a transaction that timed out is tried again, when there was no producer id to go on with."""

HELD_MS = 20
"""How long whoever begins the next transaction is kept waiting while the last one is being ended, before he is told to
ask again. Markers mostly take less, and asking again takes longer."""

FORGOTTEN_AT_ONCE_MAX = 500
"""Ids that one decision forgets: others are not to wait for a thorough cleaning."""

_EXPIRY = "expiry"


class _Held(NamedTuple):
    """Partitions to be added to a transaction that can begin once the last one has been ended."""

    ticket: Ticket
    request: AddPartitionsToTxnTransaction
    version: int


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """The outcome is stored: have the leaders of all partitions write it down."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionShard:
    def __init__(self, config: TransactionConfig, new_id: Callable[[], int | None]) -> None:
        """`new_id` gives a producer id that nobody has had, or None if there is none at hand."""
        self._config = config
        self._new_id = new_id
        self._transactions: dict[str, Transaction] = {}
        self._held: dict[str, list[_Held]] = {}
        self._armed: dict[str, int] = {}
        """When the timer of a transactional id will go off: never later than its open transaction times out."""
        self._answers: dict[type[Struct], Callable[[Ticket, Any, int, int, Decision], None]] = {
            InitProducerIdRequest: self._initialise,
            AddPartitionsToTxnTransaction: self._add_partitions,
            EndTxnRequest: self._end,
            DescribeTransactionsRequest: self._describe,
            ListTransactionsRequest: self._list,
        }

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def handle(self, ticket: Ticket, request: Struct, caller: int, now_ms: int) -> Decision:
        """`caller` is the transaction.version that whoever asks speaks. A request that may name several transactional
        ids must name one of this shard; the reply is its part of the response."""
        out = Decision()
        self._answers[type(request)](ticket, request, caller, now_ms, out)
        return out

    def abandon(self, ticket: Ticket) -> None:
        """Nobody waits for this reply any more."""
        for transactional_id, held in list(self._held.items()):
            self._held[transactional_id] = [each for each in held if each.ticket != ticket]

    # --- records, timers, markers ---

    def apply(self, key: Message, value: Message | None) -> None:
        """Takes in one record: just appended, or read from the log. The only way in which the state changes."""
        match key, value:
            case TransactionLogKey(), TransactionLogValue():
                self._transactions[key.transactional_id] = Transaction.stored(key, value)
            case TransactionLogKey(), None:
                self._transactions.pop(key.transactional_id, None)

    def apply_in_transaction(self, transaction: ClientTransaction, key: Message, value: Message | None) -> None:
        """Nothing is stored here inside a client's transaction."""

    def end_transaction(self, transaction: ClientTransaction, *, committed: bool) -> None:
        """Nothing is stored here inside a client's transaction."""

    def on_loaded(self, now_ms: int) -> Decision:
        """What was prepared is carried on with; what is open will time out."""
        out = Decision()
        for each in self._transactions.values():
            self._follow_up(each, out)
        out.arm(_EXPIRY, now_ms + self._config.expiration_check_interval_ms)
        return out

    def on_timer(self, key: Hashable, now_ms: int) -> Decision:
        out = Decision()
        match key:
            case ("timeout", str() as transactional_id):
                self._time_out(transactional_id, now_ms, out)
            case ("held", str() as transactional_id):
                self._refuse_held(transactional_id, out)
            case _:
                self._forget_expired(now_ms, out)
        return out

    def markers_written(self, sent: SendMarkers, now_ms: int) -> Decision:
        """All leaders have written down how the transaction ended."""
        out = Decision()
        known = self._transactions.get(sent.transactional_id)
        if known is not None and known.state.prepared and send_markers(known) == sent:
            completed = known.completed(now_ms)
            self._store(completed, out)
            self._answer_held(completed, now_ms, out)
        return out

    def _store(self, changed: Transaction, out: Decision) -> None:
        out.record(changed.key(), changed.value(), VALUE_VERSION)
        self._follow_up(changed, out)

    def _follow_up(self, each: Transaction, out: Decision) -> None:
        """What has to happen next with a transaction in this state."""
        at_ms = each.times_out_at_ms
        # One that goes off too early is set anew then: there is one for each id, however many transactions it has.
        if at_ms is not None and at_ms < self._armed.get(each.transactional_id, at_ms + 1):
            self._arm(each.transactional_id, at_ms, out)
        if each.state.prepared:
            out.effects.append(send_markers(each))

    def _arm(self, transactional_id: str, at_ms: int, out: Decision) -> None:
        self._armed[transactional_id] = at_ms
        out.arm(("timeout", transactional_id), at_ms)

    def _time_out(self, transactional_id: str, now_ms: int, out: Decision) -> None:
        """The holder has let the timeout pass: he is fenced, so that nothing of his can come later."""
        self._armed.pop(transactional_id, None)
        known = self._transactions.get(transactional_id)
        if known is None or known.times_out_at_ms is None:
            return
        if known.times_out_at_ms > now_ms:
            self._follow_up(known, out)
            return
        aborted = fenced(known, self._new_id, now_ms)
        if isinstance(aborted, Transaction):
            self._store(aborted, out)
        else:
            self._arm(transactional_id, now_ms + NO_ID_YET_PAUSE_MS, out)

    def _forget_expired(self, now_ms: int, out: Decision) -> None:
        latest_ms = now_ms - self._config.id_expiration_ms
        room = self._config.record_bytes_max
        for each in self._transactions.values():
            if each.state.idle and each.updated_ms <= latest_ms:
                room -= each.stored_bytes_at_most()
                if len(out.records) == FORGOTTEN_AT_ONCE_MAX or room < 0:
                    out.arm(_EXPIRY, now_ms)
                    return
                out.record(each.key(), None)
        out.arm(_EXPIRY, now_ms + self._config.expiration_check_interval_ms)

    # --- requests ---

    def _initialise(
        self, ticket: Ticket, request: InitProducerIdRequest, _version: int, now_ms: int, out: Decision
    ) -> None:
        known = self._transactions.get(request.transactional_id or "")
        changed = initialise(known, request, self._config, self._new_id, now_ms)
        if isinstance(changed, ErrorCode):
            out.reply(ticket, _no_producer_id(changed))
            return
        self._store(changed, out)
        if changed.state is TransactionState.EMPTY:
            out.reply(ticket, _producer_id(changed.identity, NOBODY))
        elif changed.resumed:
            out.reply(ticket, _producer_id(changed.holder, changed.identity))
        else:
            out.reply(ticket, _no_producer_id(ErrorCode.CONCURRENT_TRANSACTIONS))

    def _add_partitions(
        self, ticket: Ticket, request: AddPartitionsToTxnTransaction, version: int, now_ms: int, out: Decision
    ) -> None:
        known = self._transactions.get(request.transactional_id)
        claimed = Identity(request.producer_id, request.producer_epoch)
        partitions = _places(request)
        if not request.transactional_id:
            out.reply(ticket, added(request, dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)))
            return
        if request.verify_only:
            out.reply(ticket, added(request, verify(known, claimed, partitions)))
        elif known is not None and known.state.prepared:
            held = self._held.setdefault(request.transactional_id, [])
            if not held:
                out.arm(("held", request.transactional_id), now_ms + HELD_MS)
            held.append(_Held(ticket, request, version))
        else:
            self._add_to(known, _Held(ticket, request, version), now_ms, out)

    def _add_to(
        self, known: Transaction | None, asked: _Held, now_ms: int, out: Decision, room: int | None = None
    ) -> Transaction | None:
        """Gives what is known then. `room` is how many bytes are left in the batch that will be appended."""
        request = asked.request
        claimed = Identity(request.producer_id, request.producer_epoch)
        limit = self._config.record_bytes_max
        changed = add(known, claimed, _places(request), asked.version, now_ms, record_bytes_max=limit)
        code = ErrorCode.NONE
        if isinstance(changed, ErrorCode):
            code = changed
        elif room is not None and changed.stored_bytes_at_most() > room:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            self._store(changed, out)
            known = changed
        out.reply(asked.ticket, added(request, dict.fromkeys(_places(request), code)))
        return known

    def _answer_held(self, completed: Transaction, now_ms: int, out: Decision) -> None:
        held = self._held.pop(completed.transactional_id, None)
        if held is None:
            return
        out.cancel(("held", completed.transactional_id))
        known: Transaction | None = completed
        room = self._config.record_bytes_max
        for each in held:
            assert known is not None
            room -= known.stored_bytes_at_most()
            known = self._add_to(known, each, now_ms, out, room)

    def _refuse_held(self, transactional_id: str, out: Decision) -> None:
        for ticket, request, _version in self._held.pop(transactional_id, ()):
            codes = dict.fromkeys(_places(request), ErrorCode.CONCURRENT_TRANSACTIONS)
            out.reply(ticket, added(request, codes))

    def _end(self, ticket: Ticket, request: EndTxnRequest, version: int, now_ms: int, out: Decision) -> None:
        known = self._transactions.get(request.transactional_id)
        claimed = Identity(request.producer_id, request.producer_epoch)
        if not request.transactional_id:
            out.reply(ticket, _ended(ErrorCode.INVALID_REQUEST, NOBODY))
            return
        changed = end(known, claimed, version, self._new_id, now_ms, committed=request.committed)
        if isinstance(changed, Transaction):
            self._store(changed, out)
            out.reply(ticket, _ended(ErrorCode.NONE, changed.holder))
        else:
            out.reply(ticket, _ended(changed, known.holder if known and not changed else NOBODY))

    def _describe(
        self, ticket: Ticket, request: DescribeTransactionsRequest, _version: int, _now_ms: int, out: Decision
    ) -> None:
        (transactional_id,) = request.transactional_ids
        out.reply(ticket, described(transactional_id, self._transactions.get(transactional_id)))

    def _list(
        self, ticket: Ticket, request: ListTransactionsRequest, _version: int, now_ms: int, out: Decision
    ) -> None:
        out.reply(ticket, listed(self._transactions.values(), request, now_ms))


def send_markers(prepared: Transaction) -> SendMarkers:
    return SendMarkers(
        prepared.transactional_id,
        prepared.identity.producer_id,
        prepared.identity.epoch,
        prepared.state is TransactionState.PREPARE_COMMIT,
        prepared.partitions,
        prepared.version,
    )


def added(
    request: AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    """The reply that says for each partition what came of it, in the order of the request."""
    return AddPartitionsToTxnResult(
        transactional_id=request.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=codes[TopicPartition(topic.name, each)]
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _places(request: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, each) for topic in request.topics for each in topic.partitions)


def _producer_id(given: Identity, ongoing: Identity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.epoch,
    )


def _no_producer_id(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH)


def _ended(code: ErrorCode, holder: Identity) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0, error_code=code, producer_id=holder.producer_id, producer_epoch=holder.epoch
    )
