from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.client.accumulator import ProducerIdentity
from tidelog.client.errors import ClientError, InvalidState, ProducerFenced, ProducerStopped, TransactionFailed
from tidelog.client.transactions.book import NEXT, Book, Stage
from tidelog.client.transactions.handles import PreparedTransaction, TransactionHandle, TransactionPart
from tidelog.client.transactions.reactions import Reaction
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import ProducerId, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = ProducerIdentity(ProducerId(7), 0), ProducerIdentity(ProducerId(7), 1)
REFUSED = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "no")


def opened(version: int = 2) -> Book:
    book = Book("x")
    book.initialised(FIRST, version)
    book.begin(version)
    return book


def part_of(handle: TransactionHandle, *, written: bool = True) -> TransactionPart:
    return TransactionPart(handle.transactional_id, handle.producer_id, handle.epoch, written, handle.partitions)


def test_a_transaction_begins_takes_records_and_ends_with_the_next_identity() -> None:
    book = opened()
    book.check_may_write(P0)
    book.written = True
    book.begin_commit()
    book.ended(SECOND)
    assert (book.stage, book.identity, book.written) == (Stage.READY, SECOND, False)


@pytest.mark.parametrize("stage", ["new", "ready", "prepared", "committing", "aborting"])
def test_records_are_refused_outside_a_transaction(stage: str) -> None:
    book = Book("x")
    if stage != "new":
        book.initialised(FIRST, 2)
    if stage in {"prepared", "committing", "aborting"}:
        book.begin(2)
        {"prepared": book.prepare, "committing": book.begin_commit, "aborting": book.begin_abort}[stage]()
    with pytest.raises(InvalidState, match="begin"):
        book.check_may_write(P0)


def test_what_failed_can_only_be_aborted() -> None:
    book = opened()
    told = book.fail(Reaction.ABORT, REFUSED)
    assert isinstance(told, TransactionFailed)
    for attempt in (book.begin_commit, book.prepare, lambda: book.check_may_write(P0)):
        with pytest.raises(TransactionFailed, match="abort it"):
            attempt()
    book.begin_abort()
    book.ended()
    book.begin(2)
    book.check_may_write(P0)


@pytest.mark.parametrize(("reaction", "kind"), [(Reaction.FENCED, ProducerFenced), (Reaction.FATAL, ProducerStopped)])
def test_who_is_stopped_stays_so_and_says_why_each_time(reaction: Reaction, kind: type[ClientError]) -> None:
    book = opened()
    book.fail(reaction, REFUSED)
    book.fail(Reaction.ABORT, REFUSED)
    for attempt in (book.begin_commit, book.begin_abort, lambda: book.begin(2), lambda: book.check_may_write(P0)):
        with pytest.raises(kind, match="close"):
            attempt()


def test_a_commit_without_an_answer_is_asked_for_again_and_never_aborted() -> None:
    book = opened()
    book.begin_commit()
    for attempt in (book.begin_abort, lambda: book.begin(2)):
        with pytest.raises(InvalidState, match=r"commit\(\) again"):
            attempt()
    book.begin_commit()
    book.in_doubt = True
    assert "not known" in str(book.fail(Reaction.FENCED, REFUSED))


def test_what_others_end_is_none_of_the_producers_business_any_more() -> None:
    book = opened(version=1)
    with pytest.raises(InvalidState, match="after prepare"):
        book.leave_to_others()
    book.added([P0])
    book.prepare()
    book.leave_to_others()
    book.initialised(SECOND, 1)
    assert (book.prepared, book.written, book.identity) == (None, False, SECOND)
    book.begin(1)
    assert book.to_add([P0]) == {P0}


def test_partitions_are_added_first_only_by_the_older_rules() -> None:
    book = opened(version=1)
    assert book.to_add([P0, P1]) == {P0, P1}
    book.added([P0])
    assert book.to_add([P0, P1]) == {P1}
    assert book.written
    book.begin_commit()
    book.ended()
    book.begin(2)
    assert book.to_add([P0, P1]) == set()


def test_what_is_lent_is_nobody_elses_until_it_comes_back() -> None:
    book = opened()
    handle = book.lend([(P0, 5)])
    assert handle == TransactionHandle("x", 7, 0, 2, ((P0, 5),))
    with pytest.raises(InvalidState, match="lent to another"):
        book.check_may_write(P0)
    with pytest.raises(InvalidState, match="lent to another"):
        book.check_may_lend([P0])
    with pytest.raises(InvalidState, match="take every part back"):
        book.begin_commit()
    book.take_back(part_of(handle))
    assert book.written
    book.check_may_write(P0)
    book.begin_commit()


def test_a_part_comes_back_once_and_only_to_its_own_transaction() -> None:
    book = opened()
    part = part_of(book.lend([(P0, 0)]))
    book.take_back(part)
    with pytest.raises(InvalidState, match="not lent"):
        book.take_back(part)
    with pytest.raises(InvalidState, match="another transaction"):
        book.take_back(part._replace(epoch=9))


@pytest.mark.parametrize(("version", "new_epoch"), [(1, True), (2, False)])
def test_a_writer_that_was_not_heard_of_again_is_shut_out_by_a_higher_epoch(version: int, *, new_epoch: bool) -> None:
    book = opened(version)
    book.lend([(P0, 0)])
    book.begin_abort()
    assert (book.written, book.needs_new_epoch) == (True, new_epoch)


def test_who_joins_writes_to_its_own_partitions_and_ends_nothing() -> None:
    book = Book("x")
    book.join(TransactionHandle("x", 7, 0, 1, ((P0, 3),)))
    book.check_may_write(P0)
    assert book.to_add([P0]) == set()
    with pytest.raises(InvalidState, match="not among those"):
        book.check_may_write(P1)
    for attempt in (book.begin_commit, book.begin_abort, book.prepare, lambda: book.check_may_lend([P0])):
        with pytest.raises(InvalidState, match=r"leave\(\)"):
            attempt()


def test_a_prepared_transaction_is_found_and_ended_under_the_new_identity() -> None:
    book = Book("x")
    prepared = PreparedTransaction("x", 7, 0, 2)
    book.found_prepared(SECOND, prepared)
    assert book.prepared == prepared
    with pytest.raises(InvalidState):
        book.begin(2)
    book.begin_abort()
    assert book.identity == SECOND


class BookMachine(RuleBasedStateMachine):
    """Whatever is called in whatever order: stages follow each other as drawn, and outcomes are never mixed."""

    def __init__(self) -> None:
        super().__init__()
        self.book = Book("x")
        self.handles: list[TransactionHandle] = []
        self.before = Stage.NEW
        self.decided: str | None = None

    @initialize(version=st.sampled_from([0, 1, 2]))
    def start(self, version: int) -> None:
        self.book.initialised(FIRST, version)
        self.before = self.book.stage

    @rule(version=st.sampled_from([0, 1, 2]))
    def begin(self, version: int) -> None:
        with contextlib.suppress(ClientError):
            self.book.begin(version)
            self.decided, self.handles = None, []

    @rule()
    def commit(self) -> None:
        with contextlib.suppress(ClientError):
            self.book.begin_commit()
            assert self.decided in {None, "commit"}
            self.decided = "commit"

    @rule()
    def abort(self) -> None:
        with contextlib.suppress(ClientError):
            self.book.begin_abort()
            assert self.decided in {None, "abort"}
            self.decided = "abort"

    @rule()
    def prepare(self) -> None:
        with contextlib.suppress(ClientError):
            self.book.prepare()

    @rule(reaction=st.sampled_from([Reaction.ABORT, Reaction.ABORT, Reaction.FATAL, Reaction.FENCED]))
    def fail(self, reaction: Reaction) -> None:
        if self.book.stage is Stage.COMMITTING and reaction is Reaction.ABORT:
            self.decided = None  # the coordinator said no
        self.book.fail(reaction, REFUSED)

    @rule(fresh=st.booleans())
    def answered(self, *, fresh: bool) -> None:
        if self.book.stage in {Stage.COMMITTING, Stage.ABORTING}:
            self.book.ended(SECOND if fresh else None)

    @rule()
    def leave_to_others(self) -> None:
        with contextlib.suppress(ClientError):
            self.book.leave_to_others()
            self.decided = None

    @rule()
    def asked_again(self) -> None:
        if self.book.stage is Stage.NEW:
            self.book.initialised(SECOND, 2)

    @rule(partition=st.sampled_from([P0, P1]))
    def lend(self, partition: TopicPartition) -> None:
        with contextlib.suppress(ClientError):
            self.book.check_may_lend([partition])
            self.handles.append(self.book.lend([(partition, 0)]))

    @rule(written=st.booleans())
    def take_back(self, *, written: bool) -> None:
        if self.handles:
            with contextlib.suppress(ClientError):
                self.book.take_back(part_of(self.handles.pop(), written=written))

    @invariant()
    def stages_follow_each_other_as_drawn(self) -> None:
        after = self.book.stage
        assert after in {self.before, Stage.STOPPED} or after in NEXT[self.before]
        self.before = after

    @invariant()
    def what_is_lent_holds_up_the_commit(self) -> None:
        if self.book.stage in {Stage.COMMITTING, Stage.PREPARED}:
            assert not self.handles

    @invariant()
    def whoever_writes_is_in_an_open_transaction(self) -> None:
        try:
            self.book.check_may_write(P0)
        except ClientError:
            return
        assert self.book.stage is Stage.OPEN
        assert not any(partition == P0 for handle in self.handles for partition, _ in handle.partitions)


TestBookMachine = BookMachine.TestCase

_sequences = st.lists(
    st.tuples(st.builds(TopicPartition, st.text(), st.integers(0, 99)), st.integers(0, 2**31 - 1)), max_size=4
).map(tuple)


@given(st.builds(TransactionHandle, st.text(), st.integers(), st.integers(), st.integers(0, 2), _sequences))
def test_a_handle_travels_as_text(handle: TransactionHandle) -> None:
    assert TransactionHandle.from_json(handle.to_json()) == handle


@given(st.builds(TransactionPart, st.text(), st.integers(), st.integers(), st.booleans(), _sequences))
def test_a_part_travels_as_text(part: TransactionPart) -> None:
    assert TransactionPart.from_json(part.to_json()) == part


@given(st.builds(PreparedTransaction, st.text(), st.integers(), st.integers(), st.integers(0, 2), st.booleans()))
def test_a_prepared_transaction_travels_as_text(prepared: PreparedTransaction) -> None:
    assert PreparedTransaction.from_json(prepared.to_json()) == prepared


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"transactional_id": "x"}', '{"partitions": [1]}', "null"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        TransactionHandle.from_json(text)
