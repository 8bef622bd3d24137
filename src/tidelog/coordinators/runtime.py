"""Runs one shard of a coordinator on its partition of an internal topic: decide, append, apply, answer.

The shard decides and never waits. The runtime appends what was decided as one batch, applies it at once, so that the
next decision sees it, and gives out replies and effects only when the high watermark has passed everything appended so
far. Reads wait for the same mark: nobody is told what a crash could take back. When an append fails, or the high
watermark cannot move, the state is thrown away and loaded again: it is whatever the log says.

Records may be part of a client's transaction. They are appended under its producer's name, kept apart by the shard, and
count or not when its marker comes, which somebody else appends. A transaction that the log refuses is its client's
affair: he is told, and nothing else changes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tidelog.clock import Clock
    from tidelog.coordinators.decision import Decision, LoadedBatch, StoredRecord, Ticket, Transaction
    from tidelog.wire.declare import Message, Struct

logger = logging.getLogger(__name__)

RELOAD_PAUSE_S = 1.0

OnReply = Callable[["Struct | BrokerError"], None]


class Shard(Protocol):
    """The pure part: what one partition's worth of groups or transactions knows and decides."""

    def handle(self, ticket: Ticket, request: Any, caller: Any, now_ms: int) -> Decision: ...

    def apply(self, key: Message, value: Message | None) -> None: ...

    def apply_in_transaction(self, transaction: Transaction, key: Message, value: Message | None) -> None:
        """A record that counts once the transaction is committed."""

    def end_transaction(self, transaction: Transaction, *, committed: bool) -> None:
        """Its marker is in the log. There need not be any record of it."""

    def on_timer(self, key: Hashable, now_ms: int) -> Decision: ...

    def on_loaded(self, now_ms: int) -> Decision: ...

    def abandon(self, ticket: Ticket) -> None: ...


class StateLog(Protocol):
    """The partition of the internal topic, as far as a coordinator needs it."""

    def append(self, records: Sequence[StoredRecord], now_ms: int, transaction: Transaction | None = None) -> int:
        """Appends one batch and gives its last offset. Raises BrokerError."""

    def marked(self, transaction: Transaction, *, committed: bool) -> int:
        """Somebody has just appended a marker, at the offset that is given back."""

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        """Calls back once the high watermark has passed `offset`, perhaps at once, or never will."""

    @property
    def end_offset(self) -> int: ...

    def read(self) -> AsyncIterator[Sequence[LoadedBatch]]:
        """Everything, safe or not, oldest first, in portions, up to where the end is when the last one was taken."""


def take_in(shard: Shard, batch: LoadedBatch) -> None:
    """Has the shard know what a batch says."""
    if batch.transaction is None:
        for key, value in batch.records:
            shard.apply(key, value)
        return
    for key, value in batch.records:
        shard.apply_in_transaction(batch.transaction, key, value)
    if batch.committed is not None:
        shard.end_transaction(batch.transaction, committed=batch.committed)


def nobody_acts(effect: Any) -> None:
    """For shards that have no effects."""


class _Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


S = TypeVar("S", bound=Shard)


class ShardRuntime(Generic[S]):
    def __init__(
        self,
        name: str,
        make_shard: Callable[[], S],
        log: StateLog,
        clock: Clock,
        on_effect: Callable[[Any], None] = nobody_acts,
    ) -> None:
        self._name = name
        self._make_shard = make_shard
        self._log = log
        self._clock = clock
        self._on_effect = on_effect
        self._loop = asyncio.get_running_loop()
        self._shard = make_shard()
        self._phase = _Phase.LOADING
        self._tickets = count(1)
        self._waiting: dict[Ticket, OnReply] = {}
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        """Replies and effects that wait for the high watermark to pass an offset, in the order of the offsets."""
        self._last_offset = -1
        self._safe_offset = -1
        self._timers: dict[Hashable, int] = {}
        self._due: list[tuple[int, int, Hashable]] = []
        self._timer_order = count()
        self._alarm: asyncio.Handle | None = None
        self._alarm_at_s = 0.0
        """By the loop's clock. The handle need not know: uvloop gives a plain one for what is due at once."""
        self._loading = self._loop.create_task(self._load(), name=f"load {name}")

    @property
    def shard(self) -> S:
        """To look at. Decisions go through `ask` and `perform`."""
        return self._shard

    @property
    def active(self) -> bool:
        return self._phase is _Phase.ACTIVE

    def ask(self, request: Struct, caller: Any, on_reply: OnReply) -> Ticket:
        """Has the shard answer. Raises BrokerError if it cannot be asked now."""
        if self._phase is _Phase.LOADING:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._name} is still being loaded: try again")
        if self._phase is _Phase.CLOSED:
            raise BrokerError(ErrorCode.NOT_COORDINATOR, f"{self._name} is coordinated elsewhere")
        ticket = next(self._tickets)
        self._waiting[ticket] = on_reply
        self._decide(lambda shard, now_ms: shard.handle(ticket, request, caller, now_ms))
        return ticket

    def abandon(self, ticket: Ticket) -> None:
        """Nobody waits for the reply any more."""
        if self._waiting.pop(ticket, None) is not None and self.active:
            self._shard.abandon(ticket)

    def perform(self, decide: Callable[[S, int], Decision]) -> None:
        """Has the shard decide something that no request asked for. While loading there is nothing to decide on."""
        if self.active:
            self._decide(decide)

    def transaction_ended(self, transaction: Transaction, *, committed: bool) -> None:
        """To be called in the step that appended its marker. While loading there is no need: the marker is read."""
        if self.active:
            self._last_offset = self._log.marked(transaction, committed=committed)
            self._shard.end_transaction(transaction, committed=committed)
            self._await_safety()

    def close(self) -> None:
        """The partition is led elsewhere, or the broker stops."""
        self._phase = _Phase.CLOSED
        self._held.clear()
        self._loading.cancel()
        self._disarm()
        self._fail_waiting(BrokerError(ErrorCode.NOT_COORDINATOR, f"{self._name} is coordinated elsewhere"))

    # --- deciding ---

    def _decide(self, decide: Callable[[S, int], Decision]) -> None:
        now_ms = self._clock.now_ms()
        shard = self._shard
        try:
            decision = decide(shard, now_ms)
            if decision.records and not self._append(decision, now_ms):
                return
        except BrokerError as error:
            self._start_over(error)
            return
        if self._shard is not shard:
            return  # its append could not be kept: what it decided goes with it
        for timer in decision.timers:
            self._set_timer(timer.key, timer.at_ms)
        self._ring_at_next()
        for ticket, reply in decision.replies:
            self._when_safe(partial(self._deliver, ticket, reply))
        for effect in decision.effects:
            self._when_safe(partial(self._on_effect, effect))

    def _append(self, decision: Decision, now_ms: int) -> bool:
        """False if a client's transaction was refused: nothing has changed."""
        transaction = decision.transaction
        if transaction is None:
            self._last_offset = self._log.append(decision.records, now_ms)
            for record in decision.records:
                self._shard.apply(record.key, record.value)
        else:
            try:
                self._last_offset = self._log.append(decision.records, now_ms, transaction)
            except BrokerError as error:
                for ticket, _reply in decision.replies:
                    self._deliver(ticket, error)
                return False
            for record in decision.records:
                self._shard.apply_in_transaction(transaction, record.key, record.value)
        self._await_safety()
        return True

    def _await_safety(self) -> None:
        self._log.when_safe(self._last_offset, self._became_safe_at(self._last_offset))

    def _became_safe_at(self, offset: int) -> Callable[[BrokerError | None], None]:
        shard = self._shard

        def settle(error: BrokerError | None) -> None:
            if self._shard is not shard or self._phase is _Phase.CLOSED:
                return  # this state was thrown away meanwhile
            if error is not None:
                self._start_over(error)
                return
            self._safe_offset = max(self._safe_offset, offset)
            while self._held and self._held[0][0] <= self._safe_offset:
                _offset, release = self._held.popleft()
                release()

        return settle

    def _when_safe(self, release: Callable[[], None]) -> None:
        if self._last_offset <= self._safe_offset:
            release()
        else:
            self._held.append((self._last_offset, release))

    def _deliver(self, ticket: Ticket, reply: Struct | BrokerError) -> None:
        on_reply = self._waiting.pop(ticket, None)
        if on_reply is not None:
            on_reply(reply)

    # --- timers: one alarm, for the earliest ---

    def _set_timer(self, key: Hashable, at_ms: int | None) -> None:
        if at_ms is None:
            self._timers.pop(key, None)
            return
        self._timers[key] = at_ms
        heapq.heappush(self._due, (at_ms, next(self._timer_order), key))

    def _ring_at_next(self) -> None:
        while self._due and self._timers.get(self._due[0][2]) != self._due[0][0]:
            heapq.heappop(self._due)  # cancelled, or set anew
        if not self._due:
            self._disarm()
            return
        delay_s = max(self._due[0][0] - self._clock.now_ms(), 0) / 1000
        when_s = self._loop.time() + delay_s
        if self._alarm is not None:
            if self._alarm_at_s <= when_s + 0.001:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when_s, self._ring)
        self._alarm_at_s = when_s

    def _ring(self) -> None:
        self._alarm = None
        now_ms = self._clock.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _order, key = heapq.heappop(self._due)
            if self._timers.get(key) == at_ms:
                del self._timers[key]
                self._decide(lambda shard, now_ms, key=key: shard.on_timer(key, now_ms))  # type: ignore[misc]
                if not self.active:
                    return
        self._ring_at_next()

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # --- loading ---

    async def _load(self, pause_s: float = 0.0) -> None:
        while True:
            await asyncio.sleep(pause_s)
            shard = self._make_shard()
            records = 0
            try:
                async for portion in self._log.read():
                    for batch in portion:
                        take_in(shard, batch)
                        records += len(batch.records)
            except BrokerError as error:
                logger.error("%s cannot be loaded, and is tried again: %s", self._name, error)
                pause_s = RELOAD_PAUSE_S
                continue
            break
        self._shard = shard
        self._phase = _Phase.ACTIVE
        # The last records may not be safe yet: what is decided on them must not be told before they are.
        self._last_offset = self._log.end_offset - 1
        self._await_safety()
        if records:
            logger.info("%s is loaded: %d records", self._name, records)
        self._decide(lambda shard, now_ms: shard.on_loaded(now_ms))

    def _start_over(self, error: BrokerError) -> None:
        """What was decided could not be kept: forget it, tell those who wait, and load what the log has."""
        logger.error("%s is loaded anew: %s", self._name, error)
        self._disarm()
        self._timers.clear()
        self._due.clear()
        self._held.clear()
        self._shard = self._make_shard()
        self._safe_offset = self._last_offset = -1
        self._phase = _Phase.LOADING
        self._fail_waiting(
            BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} could not be written: try again")
        )
        self._loading = self._loop.create_task(self._load(RELOAD_PAUSE_S), name=f"load {self._name}")

    def _fail_waiting(self, error: BrokerError) -> None:
        waiting, self._waiting = self._waiting, {}
        for on_reply in waiting.values():
            on_reply(error)
