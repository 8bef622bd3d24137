"""Decide, append, apply, answer: what the runtime promises to every shard and to everyone who asks one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from tidelog.coordinators.coordinator import Coordinator
from tidelog.coordinators.decision import Decision, LoadedBatch, Transaction
from tidelog.coordinators.placement import java_string_hash, partition_for
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.stored.transactions import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence

    from tidelog.coordinators.decision import StoredRecord, Ticket
    from tidelog.coordinators.runtime import ShardRuntime
    from tidelog.wire.declare import Message, Struct


MINE = Transaction(7, 0)


class Tally:
    """A shard that counts.

    `add` appends a record, `read` only tells, `ring` arms a timer that adds one, `effect` asks for one after it has
    added, `later` adds inside a transaction.
    """

    def __init__(self) -> None:
        self.total = 0
        self.pending = 0
        self.abandoned: list[Ticket] = []

    def handle(self, ticket: Ticket, request: Struct, _caller: Any, now_ms: int) -> Decision:
        assert isinstance(request, HeartbeatRequest)
        decision = Decision()
        if request.group_id in {"add", "effect", "later"}:
            self._add(decision)
        if request.group_id == "effect":
            decision.effects.append(self.total + 1)
        if request.group_id == "later":
            decision.transaction = MINE
        if request.group_id == "ring":
            decision.arm("bell", now_ms + 10)
        if request.group_id == "ring at once":
            decision.arm("bell", now_ms)
        if request.group_id != "never":
            decision.reply(ticket, HeartbeatResponse(error_code=self.total + len(decision.records)))
        return decision

    def _add(self, decision: Decision) -> None:
        value = TransactionLogValue(
            producer_id=1, producer_epoch=0, transaction_timeout_ms=0, transaction_status=0,
            transaction_partitions=None, transaction_last_update_timestamp_ms=0, transaction_start_timestamp_ms=0,
        )  # fmt: skip
        decision.record(TransactionLogKey(transactional_id="x"), value)

    def apply(self, _key: Message, value: Message | None) -> None:
        assert isinstance(value, TransactionLogValue)
        self.total += value.producer_id

    def apply_in_transaction(self, transaction: Transaction, _key: Message, value: Message | None) -> None:
        assert transaction == MINE
        assert isinstance(value, TransactionLogValue)
        self.pending += value.producer_id

    def end_transaction(self, transaction: Transaction, *, committed: bool) -> None:
        assert transaction == MINE
        self.total += self.pending if committed else 0
        self.pending = 0

    def on_timer(self, key: Hashable, _now_ms: int) -> Decision:
        assert key == "bell"
        decision = Decision()
        self._add(decision)
        return decision

    def on_loaded(self, _now_ms: int) -> Decision:
        return Decision(effects=["loaded"])

    def abandon(self, ticket: Ticket) -> None:
        self.abandoned.append(ticket)


class Log:
    """A log whose high watermark the test moves. Every batch takes one offset."""

    def __init__(self) -> None:
        self.batches: list[LoadedBatch] = []
        self.waiting: list[tuple[int, Callable[[BrokerError | None], None]]] = []
        self.high_watermark = 0
        self.broken = False
        self.fenced = False
        self.may_be_read = asyncio.Event()
        self.may_be_read.set()

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    def append(self, records: Sequence[StoredRecord], _now_ms: int, transaction: Transaction | None = None) -> int:
        if self.broken:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        if self.fenced and transaction is not None:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, "somebody newer is there")
        self.batches.append(LoadedBatch([(record.key, record.value) for record in records], transaction))
        return len(self.batches) - 1

    def mark(self, *, committed: bool) -> None:
        self.batches.append(LoadedBatch((), MINE, committed))

    def marked(self, transaction: Transaction, *, committed: bool) -> int:
        assert self.batches[-1] == LoadedBatch((), transaction, committed)
        return len(self.batches) - 1

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        if offset < self.high_watermark:
            then(None)
        else:
            self.waiting.append((offset, then))

    def make_safe(self, error: BrokerError | None = None) -> None:
        self.high_watermark = len(self.batches)
        waiting, self.waiting = self.waiting, []
        for _offset, then in waiting:
            then(error)

    async def read(self) -> AsyncIterator[Sequence[LoadedBatch]]:
        await self.may_be_read.wait()
        at = 0
        while at < len(self.batches):
            yield self.batches[at : at + 1]
            at += 1
            await self.may_be_read.wait()


class StillClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Stage:
    def __init__(self) -> None:
        self.log = Log()
        self.clock = StillClock()
        self.effects: list[Any] = []
        self.coordinator: Coordinator[Tally] = Coordinator("__state", Tally, lambda: 1, self.clock, self.effects.append)

    async def open(self) -> ShardRuntime[Tally]:
        self.coordinator.lead(0, self.log)
        await self.settled()
        return self.coordinator.shard_of("any")

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def ask(self, what: str) -> list[Any]:
        """The list gets the reply when it comes."""
        replies: list[Any] = []

        def on_reply(reply: Struct | BrokerError) -> None:
            replies.append(reply.error_code if isinstance(reply, HeartbeatResponse) else reply)

        request = HeartbeatRequest(group_id=what, generation_id=0, member_id="")
        self.coordinator.shard_of("any").ask(request, None, on_reply)
        return replies


def on_stage(story: Callable[[Stage], Awaitable[None]], run: Callable[..., object] = asyncio.run) -> None:
    async def main() -> None:
        stage = Stage()
        try:
            await story(stage)
        finally:
            stage.coordinator.close()

    run(main())


def test_a_reply_waits_until_its_record_is_safe() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        reply = stage.ask("add")
        assert reply == []
        stage.log.make_safe()
        assert reply == [1]

    on_stage(story)


def test_the_next_decision_sees_what_was_decided_before_it_is_safe() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        first, second = stage.ask("add"), stage.ask("add")
        stage.log.make_safe()
        assert (first, second) == ([1], [2])

    on_stage(story)


def test_a_read_waits_for_the_same_mark() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        assert stage.ask("read") == [0]
        stage.ask("add")
        read = stage.ask("read")
        assert read == []
        stage.log.make_safe()
        assert read == [1]

    on_stage(story)


def test_loading_is_the_same_apply_and_clients_are_told_to_wait_for_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("add")
        stage.ask("add")
        stage.log.make_safe()
        stage.log.may_be_read.clear()
        stage.coordinator.lead(0, stage.log)
        with pytest.raises(BrokerError) as refusal:
            stage.ask("read")
        assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        stage.log.may_be_read.set()
        await stage.settled()
        assert stage.ask("read") == [2]

    on_stage(story)


def test_what_was_loaded_but_is_not_safe_is_not_told() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("add")
        await stage.open()
        read = stage.ask("read")
        assert read == []
        stage.log.make_safe()
        assert read == [1]

    on_stage(story)


def test_a_failed_append_tells_everyone_and_throws_the_state_away() -> None:
    async def story(stage: Stage) -> None:
        runtime = await stage.open()
        parked = stage.ask("never")
        stage.log.broken = True
        failed = stage.ask("add")
        assert [reply[0].code for reply in (parked, failed)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert not runtime.active

    on_stage(story)


def test_a_batch_that_can_never_be_safe_fails_its_reply() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        reply = stage.ask("add")
        stage.log.make_safe(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "fsync failed"))
        assert reply[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    on_stage(story)


def test_effects_wait_until_everything_before_them_is_safe() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        assert stage.effects == ["loaded"]
        stage.ask("add")
        reply = stage.ask("effect")
        stage.ask("effect")
        assert stage.effects == ["loaded"]
        stage.log.make_safe()
        assert stage.effects == ["loaded", 2, 3]
        assert reply == [2]

    on_stage(story)


def test_effects_of_what_was_loaded_wait_until_it_is_safe() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("add")
        await stage.open()
        assert stage.effects == ["loaded"]
        stage.log.make_safe()
        assert stage.effects == ["loaded", "loaded"]

    on_stage(story)


def test_effects_are_dropped_with_the_state_that_wanted_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("effect")
        stage.log.make_safe(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "fsync failed"))
        assert stage.effects == ["loaded"]

    on_stage(story)


def test_effects_are_dropped_when_the_coordinator_is_lost() -> None:
    async def story(stage: Stage) -> None:
        runtime = await stage.open()
        stage.ask("effect")
        stage.coordinator.resign(0)
        stage.log.make_safe()
        assert stage.effects == ["loaded"]
        assert not runtime.active

    on_stage(story)


def test_bad_news_of_an_append_does_not_bring_back_what_was_closed() -> None:
    async def story(stage: Stage) -> None:
        runtime = await stage.open()
        stage.ask("add")
        stage.coordinator.resign(0)
        stage.log.make_safe(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone"))
        with pytest.raises(BrokerError) as refusal:
            runtime.ask(HeartbeatRequest(group_id="read", generation_id=0, member_id=""), None, print)
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR

    on_stage(story)


@pytest.mark.parametrize(("committed", "total"), [(True, 2), (False, 1)])
def test_what_is_part_of_a_transaction_counts_once_that_is_committed(committed: bool, total: int) -> None:
    async def story(stage: Stage) -> None:
        runtime = await stage.open()
        stage.ask("later")
        stage.ask("add")
        stage.log.make_safe()
        assert stage.ask("read") == [1]
        stage.log.mark(committed=committed)
        runtime.transaction_ended(MINE, committed=committed)
        read = stage.ask("read")
        assert read == [], "the marker could still be lost"
        stage.log.make_safe()
        assert read == [total]
        await stage.open()
        assert stage.ask("read") == [total], "loading leads to the same"

    on_stage(story)


def test_a_marker_that_comes_while_the_log_is_read_is_read_with_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("later")
        stage.log.make_safe()
        stage.log.may_be_read.clear()
        stage.coordinator.lead(0, stage.log)
        await stage.settled()
        stage.log.mark(committed=True)
        stage.coordinator.shard_of("any").transaction_ended(MINE, committed=True)
        stage.log.make_safe()
        stage.log.may_be_read.set()
        await stage.settled()
        assert stage.ask("read") == [1]

    on_stage(story)


def test_a_transaction_that_is_refused_concerns_only_its_client() -> None:
    async def story(stage: Stage) -> None:
        runtime = await stage.open()
        parked = stage.ask("never")
        stage.log.fenced = True
        refused = stage.ask("later")
        assert refused[0].code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert runtime.active
        assert parked == []
        assert runtime.shard.pending == 0

    on_stage(story)


def test_a_timer_rings_once_at_its_time() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("ring")
        assert stage.log.batches == []
        stage.clock.ms += 10
        await until(lambda: len(stage.log.batches) == 1)
        stage.log.make_safe()
        assert stage.ask("read") == [1]

    on_stage(story)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_decisions_may_come_before_a_timer_that_is_due_at_once(run: Callable[..., object]) -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        stage.ask("ring at once")
        stage.ask("read")
        await until(lambda: len(stage.log.batches) == 1)
        stage.log.make_safe()
        assert stage.ask("read") == [1]

    on_stage(story, run)


def test_an_abandoned_request_is_forgotten_by_both() -> None:
    async def story(stage: Stage) -> None:
        runtime = await stage.open()
        replies: list[Any] = []
        ticket = runtime.ask(HeartbeatRequest(group_id="never", generation_id=0, member_id=""), None, replies.append)
        runtime.abandon(ticket)
        stage.coordinator.resign(0)
        assert runtime.shard.abandoned == [ticket]
        assert replies == []

    on_stage(story)


def test_who_waits_when_leadership_is_lost_is_sent_elsewhere() -> None:
    async def story(stage: Stage) -> None:
        await stage.open()
        reply = stage.ask("never")
        stage.coordinator.resign(0)
        assert reply[0].code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(BrokerError) as refusal:
            stage.ask("read")
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR

    on_stage(story)


def test_without_the_internal_topic_nobody_coordinates() -> None:
    async def story(stage: Stage) -> None:
        empty: Coordinator[Tally] = Coordinator("__state", Tally, lambda: None, stage.clock)
        with pytest.raises(BrokerError) as refusal:
            empty.shard_of("any")
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    on_stage(story)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", -(2**31)), ("über", 7604755), ("😀", 1772899)],
)
def test_strings_hash_as_in_java(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_smallest_hash_has_a_partition_too() -> None:
    assert partition_for("polygenelubricants", 50) == 0


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 30
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that"
        await asyncio.sleep(0.001)
