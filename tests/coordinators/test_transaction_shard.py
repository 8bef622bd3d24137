"""What the transaction coordinator answers, request by request, as producers of either transaction.version see it."""

from __future__ import annotations

import pytest
from transaction_driver import A0, A1, B0, TIMEOUT_MS, TV1, TV2, TransactionDriver

from tidelog.coordinators.transactions.config import TransactionConfig
from tidelog.coordinators.transactions.shard import FORGOTTEN_AT_ONCE_MAX, HELD_MS, SendMarkers
from tidelog.coordinators.transactions.states import TransactionState as S
from tidelog.coordinators.transactions.transaction import EPOCH_MAX, FOREVER_MS, LAST_EPOCH_GIVEN, NOBODY, Identity
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages import describe_transactions
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

TWO_PHASE = TransactionConfig(two_phase_commit_enable=True)


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()


# --- taking a transactional id over ---


def test_a_new_transactional_id_gets_a_fresh_producer_id_at_epoch_0(driver: TransactionDriver) -> None:
    assert driver.init("x") == (1000, 0)
    assert driver.init("y") == (1001, 0)


def test_whoever_takes_it_over_gets_the_next_epoch_and_fences_the_one_before(driver: TransactionDriver) -> None:
    first = driver.init()
    second = driver.init()
    assert second == (first.producer_id, first.epoch + 1)
    assert driver.add(first, A0) is ErrorCode.PRODUCER_FENCED
    assert driver.refused_end(first, commit=True) is ErrorCode.PRODUCER_FENCED
    assert driver.refused_end(first, commit=False, version=TV2) is ErrorCode.PRODUCER_FENCED
    assert driver.add(second, A0) is ErrorCode.NONE


@pytest.mark.parametrize("version", [TV1, TV2])
def test_an_open_transaction_is_aborted_before_the_id_is_given_on(driver: TransactionDriver, version: int) -> None:
    first = driver.init()
    driver.add(first, A0, version=version)
    assert driver.try_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.try_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.write_markers() == [
        SendMarkers("x", first.producer_id, first.epoch + 1, False, frozenset({A0}), version)
    ]
    assert driver.init() == (first.producer_id, first.epoch + 2)
    assert driver.refused_end(first, commit=True, version=version) is ErrorCode.PRODUCER_FENCED


def test_a_timeout_must_be_one_that_the_broker_allows(driver: TransactionDriver) -> None:
    for timeout_ms in (0, -1, driver.config.max_timeout_ms + 1):
        assert driver.try_init(timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert driver.try_init(timeout_ms=driver.config.max_timeout_ms).error_code == ErrorCode.NONE


def test_requests_that_make_no_sense_are_refused(driver: TransactionDriver) -> None:
    half = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1, producer_id=3)
    for request in (half, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1)):
        reply = driver.ask(request, TV1, InitProducerIdResponse)
        assert (reply.error_code, reply.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert driver.add(NOBODY, A0, name="") is ErrorCode.INVALID_REQUEST
    assert driver.refused_end(NOBODY, commit=True, name="") is ErrorCode.INVALID_REQUEST
    assert not driver.log


def test_without_producer_ids_at_hand_the_client_tries_again(driver: TransactionDriver) -> None:
    driver.ids_at_hand = False
    assert driver.try_init().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.ids_at_hand = True
    assert driver.try_init().error_code == ErrorCode.NONE


# --- a producer that says who it was (KIP-360) ---


def test_a_producer_that_says_who_it_was_goes_on_with_the_next_epoch(driver: TransactionDriver) -> None:
    first = driver.init()
    second = driver.init(claimed=first)
    assert second == (first.producer_id, first.epoch + 1)


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_producer_that_repeats_itself_is_given_the_same_epoch_again(
    driver: TransactionDriver, *, reloaded: bool
) -> None:
    first = driver.init()
    second = driver.init(claimed=first)
    if reloaded:
        driver.reload()
    assert driver.init(claimed=first) == second


def test_a_producer_that_was_replaced_is_fenced(driver: TransactionDriver) -> None:
    first = driver.init()
    driver.init()
    assert driver.try_init(claimed=first).error_code == ErrorCode.PRODUCER_FENCED
    assert driver.try_init(claimed=Identity(7, 0)).error_code == ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_was_forgotten_begins_anew(driver: TransactionDriver) -> None:
    assert driver.init(claimed=Identity(7, 3)) == (1000, 0)


# --- epochs that are used up ---


def test_when_epochs_are_used_up_another_producer_id_goes_on(driver: TransactionDriver) -> None:
    first = driver.init()
    last = driver.age(LAST_EPOCH_GIVEN)
    second = driver.init(claimed=last)
    assert second == (first.producer_id + 1, 0)
    assert driver.init(claimed=last) == second, "asked again, for the answer was lost"
    assert driver.add(last, A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [TV1, TV2])
def test_the_last_epoch_can_still_be_fenced(driver: TransactionDriver, version: int) -> None:
    driver.init()
    last = driver.age(LAST_EPOCH_GIVEN)
    driver.add(last, A0, version=version)
    assert driver.try_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    (sent,) = driver.write_markers()
    assert (sent.producer_id, sent.producer_epoch) == (last.producer_id, EPOCH_MAX)
    given = driver.init()
    assert given.producer_id > last.producer_id


def test_ending_a_transaction_at_the_last_epoch_goes_on_with_another_producer_id(driver: TransactionDriver) -> None:
    driver.init()
    last = driver.age(LAST_EPOCH_GIVEN)
    driver.add(last, A0, version=TV2)
    driver.ids_at_hand = False
    assert driver.refused_end(last, commit=True, version=TV2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.ids_at_hand = True
    given = driver.end(last, commit=True, version=TV2)
    assert given == (last.producer_id + 1, 0)
    assert driver.add(given, A0, version=TV2) is ErrorCode.CONCURRENT_TRANSACTIONS, "markers are on their way"
    assert driver.refused_end(last, commit=True, version=TV2) is ErrorCode.CONCURRENT_TRANSACTIONS
    (sent,) = driver.write_markers()
    assert (sent.producer_id, sent.producer_epoch) == (last.producer_id, EPOCH_MAX)
    assert driver.end(last, commit=True, version=TV2) == given, "asked again, for the answer was lost"
    assert driver.add(given, A0, version=TV2) is ErrorCode.NONE


def test_a_transaction_that_times_out_waits_for_a_producer_id_to_go_on_with(driver: TransactionDriver) -> None:
    driver.init()
    last = driver.age(LAST_EPOCH_GIVEN)
    driver.add(last, A0, version=TV2)
    driver.ids_at_hand = False
    driver.pass_time(TIMEOUT_MS + 5000)
    assert driver.state() is S.ONGOING
    driver.ids_at_hand = True
    driver.pass_time(1000)
    assert driver.state() is S.PREPARE_ABORT


# --- what is in a transaction ---


def test_partitions_gather_until_the_end(driver: TransactionDriver) -> None:
    who = driver.init()
    assert driver.add(who, A0, A1) is ErrorCode.NONE
    stored = len(driver.log)
    assert driver.add(who, A1) is ErrorCode.NONE
    assert len(driver.log) == stored, "nothing new needs no record"
    assert driver.add(who, B0) is ErrorCode.NONE
    driver.end(who, commit=True)
    assert driver.effects == [SendMarkers("x", *who, True, frozenset({A0, A1, B0}), TV1)]


def test_adding_nothing_begins_nothing(driver: TransactionDriver) -> None:
    who = driver.init()
    request = AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=who.producer_id, producer_epoch=who.epoch, topics=[]
    )
    assert driver.ask(request, TV1, AddPartitionsToTxnResult).topic_results == []
    assert driver.state() is S.EMPTY


def test_an_unknown_id_and_a_wrong_producer_can_add_nothing(driver: TransactionDriver) -> None:
    assert driver.add(Identity(1, 0), A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    who = driver.init()
    assert driver.add(Identity(who.producer_id + 1, 0), A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(Identity(who.producer_id, 9), A0) is ErrorCode.PRODUCER_FENCED


def test_nothing_can_be_added_while_markers_are_written(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=True)
    assert driver.add(who, A1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(who, A0, verify_only=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.add(who, A1) is ErrorCode.NONE


def adding(who: Identity, *places: TopicPartition) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition]) for place in places]
    return AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=who.producer_id, producer_epoch=who.epoch, topics=topics
    )


def codes(reply: object) -> set[int]:
    assert isinstance(reply, AddPartitionsToTxnResult)
    return {each.partition_error_code for topic in reply.topic_results for each in topic.results_by_partition}


def test_whoever_begins_while_markers_are_written_is_answered_when_they_are(driver: TransactionDriver) -> None:
    first = driver.init()
    driver.add(first, A0, version=TV2)
    second = driver.end(first, commit=True, version=TV2)
    for ticket, request in ((101, adding(second, A0)), (102, adding(first, A1)), (103, adding(second, B0))):
        driver.perform(driver.shard.handle(ticket, request, TV2, driver.now_ms))
    assert not driver.replies
    driver.write_markers()
    assert [codes(driver.replies[ticket]) for ticket in (101, 102, 103)] == [{0}, {ErrorCode.PRODUCER_FENCED}, {0}]
    assert driver.state() is S.ONGOING
    assert driver.known().partitions == {A0, B0}
    driver.pass_time(HELD_MS)
    assert len(driver.replies) == 3, "each is answered once"


def test_nobody_is_kept_waiting_for_long(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=True)
    driver.perform(driver.shard.handle(101, adding(who, A1), TV1, driver.now_ms))
    driver.perform(driver.shard.handle(102, adding(who, B0), TV1, driver.now_ms))
    driver.shard.abandon(102)
    driver.pass_time(HELD_MS - 1)
    assert not driver.replies
    driver.pass_time(1)
    assert codes(driver.replies.pop(101)) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    driver.write_markers()
    assert not driver.replies
    assert driver.state() is S.COMPLETE_COMMIT


def test_what_does_not_fit_into_the_batch_with_the_end_is_asked_for_again() -> None:
    driver = TransactionDriver(TransactionConfig(record_bytes_max=1000))
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=True)
    many = [TopicPartition("a", number) for number in range(150)]
    driver.perform(driver.shard.handle(101, adding(who, A1), TV1, driver.now_ms))
    driver.perform(driver.shard.handle(102, adding(who, *many), TV1, driver.now_ms))
    driver.write_markers()
    assert codes(driver.replies[101]) == {ErrorCode.NONE}
    assert codes(driver.replies[102]) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert driver.add(who, *many) is ErrorCode.NONE


def test_leaders_learn_whether_their_partition_is_in_the_transaction(driver: TransactionDriver) -> None:
    who = driver.init()
    assert driver.add(who, A0, verify_only=True) is ErrorCode.TRANSACTION_ABORTABLE
    driver.add(who, A0)
    assert driver.add(who, A0, B0, verify_only=True) == {A0: ErrorCode.NONE, B0: ErrorCode.TRANSACTION_ABORTABLE}
    assert driver.add(Identity(who.producer_id, 5), A0, verify_only=True) is ErrorCode.PRODUCER_FENCED
    assert driver.add(Identity(1, 0), A0, verify_only=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(who, A0, name="y", verify_only=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.known().partitions == {A0}


def test_a_transaction_must_fit_into_one_record() -> None:
    driver = TransactionDriver(TransactionConfig(record_bytes_max=1000))
    who = driver.init()
    assert driver.add(who, *(TopicPartition("a", n) for n in range(100))) is ErrorCode.NONE
    assert driver.add(who, *(TopicPartition("a", n) for n in range(300))) is ErrorCode.POLICY_VIOLATION
    assert len(driver.known().partitions) == 100


# --- the end ---


@pytest.mark.parametrize("commit", [True, False])
def test_an_outcome_is_stored_then_marked_then_complete(driver: TransactionDriver, *, commit: bool) -> None:
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=commit)
    assert driver.state() is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert driver.refused_end(who, commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.refused_end(who, commit=not commit) is ErrorCode.INVALID_TXN_STATE
    driver.write_markers()
    assert driver.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert driver.refused_end(who, commit=commit) is ErrorCode.NONE
    assert driver.refused_end(who, commit=not commit) is ErrorCode.INVALID_TXN_STATE


def test_an_older_producer_can_only_end_what_it_began(driver: TransactionDriver) -> None:
    who = driver.init()
    assert driver.refused_end(who, commit=True) is ErrorCode.INVALID_TXN_STATE
    assert driver.refused_end(who, commit=False) is ErrorCode.INVALID_TXN_STATE
    assert driver.refused_end(who, commit=False, name="y") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch_and_markers_carry_the_higher_one(
    driver: TransactionDriver, *, commit: bool
) -> None:
    first = driver.init()
    driver.add(first, A0, version=TV2)
    second = driver.end(first, commit=commit, version=TV2)
    assert second == (first.producer_id, first.epoch + 1)
    assert driver.write_markers() == [SendMarkers("x", *second, commit, frozenset({A0}), TV2)]
    assert driver.end(first, commit=commit, version=TV2) == second, "asked again, for the answer was lost"
    assert driver.refused_end(first, commit=not commit, version=TV2) is ErrorCode.INVALID_TXN_STATE
    assert driver.add(first, A0, version=TV2) is ErrorCode.PRODUCER_FENCED
    assert driver.add(second, A0, version=TV2) is ErrorCode.NONE
    assert driver.refused_end(first, commit=commit, version=TV2) is ErrorCode.PRODUCER_FENCED


def test_aborting_nothing_raises_the_epoch_at_once(driver: TransactionDriver) -> None:
    first = driver.init()
    second = driver.end(first, commit=False, version=TV2)
    assert (second.epoch, driver.state(), driver.effects) == (first.epoch + 1, S.COMPLETE_ABORT, [])
    assert driver.end(first, commit=False, version=TV2) == second
    assert driver.end(second, commit=False, version=TV2).epoch == second.epoch + 1


def test_nothing_cannot_be_committed(driver: TransactionDriver) -> None:
    who = driver.init()
    assert driver.refused_end(who, commit=True, version=TV2) is ErrorCode.INVALID_TXN_STATE


def test_a_later_producer_is_not_taken_for_an_older_ones_repetition(driver: TransactionDriver) -> None:
    """An older client commits at the epoch above that of one that was fenced."""
    fenced = driver.init()
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=True)
    driver.write_markers()
    assert driver.refused_end(fenced, commit=True, version=TV2) is ErrorCode.PRODUCER_FENCED


def test_markers_of_another_transaction_complete_nothing(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=True)
    (early,) = driver.write_markers()
    driver.add(who, B0)
    driver.perform(driver.shard.markers_written(early, driver.now_ms))
    assert driver.state() is S.ONGOING
    driver.end(who, commit=False)
    driver.perform(driver.shard.markers_written(early, driver.now_ms))
    assert driver.state() is S.PREPARE_ABORT


def test_prepared_transactions_are_carried_on_with_after_loading(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A0, B0)
    driver.end(who, commit=True)
    sent = list(driver.effects)
    driver.reload()
    assert driver.effects == sent
    driver.write_markers()
    assert driver.state() is S.COMPLETE_COMMIT
    driver.reload()
    assert driver.effects == []


# --- time ---


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("reloaded", [False, True])
def test_an_abandoned_transaction_is_aborted_exactly_when_its_time_is_up(
    driver: TransactionDriver, version: int, *, reloaded: bool
) -> None:
    who = driver.init()
    driver.pass_time(TIMEOUT_MS)
    driver.add(who, A0, version=version)
    driver.pass_time(TIMEOUT_MS // 2)
    driver.add(who, A1, version=version)
    if reloaded:
        driver.reload()
    driver.pass_time(TIMEOUT_MS // 2 - 1)
    assert driver.state() is S.ONGOING
    driver.pass_time(1)
    assert driver.state() is S.PREPARE_ABORT
    (sent,) = driver.write_markers()
    assert (sent.producer_epoch, sent.committed) == (who.epoch + 1, False)
    assert driver.add(who, A0, version=version) is ErrorCode.PRODUCER_FENCED


def test_who_aborts_what_has_timed_out_goes_on_with_the_epoch_that_fenced_it(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A0, version=TV2)
    driver.pass_time(TIMEOUT_MS)
    driver.write_markers()
    assert driver.refused_end(who, commit=True, version=TV2) is ErrorCode.INVALID_TXN_STATE
    assert driver.end(who, commit=False, version=TV2) == (who.producer_id, who.epoch + 1)


def test_a_transaction_that_has_ended_does_not_time_out(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A0)
    driver.end(who, commit=True)
    driver.pass_time(TIMEOUT_MS)
    assert driver.state() is S.PREPARE_COMMIT
    driver.write_markers()
    driver.pass_time(TIMEOUT_MS)
    assert driver.state() is S.COMPLETE_COMMIT


def test_unused_ids_are_forgotten_and_used_ones_are_not() -> None:
    driver = TransactionDriver(TransactionConfig(id_expiration_ms=10_000_000, expiration_check_interval_ms=1000))
    for name in ("idle", "open", "prepared"):
        who = driver.init(name, two_phase=False)
        if name != "idle":
            driver.add(who, A0, name=name)
    driver.end(driver.known("prepared").holder, commit=True, name="prepared")
    driver.timers = {key: at_ms for key, at_ms in driver.timers.items() if key == "expiry"}
    driver.pass_time(9_999_000)
    assert len(list(driver.shard)) == 3
    driver.pass_time(2000)
    assert {each.transactional_id for each in driver.shard} == {"open", "prepared"}
    assert {each.transactional_id for each in driver.loaded()} == {"open", "prepared"}


def test_a_timer_for_each_id_is_enough(driver: TransactionDriver) -> None:
    """A shorter timeout moves it; a longer one, and every later transaction, is looked at when it goes off."""
    who = driver.init()
    for _ in range(10):
        driver.add(who, A0)
        driver.end(who, commit=True)
        driver.write_markers()
        driver.pass_time(1000)
    assert len(driver.timers) == 2, "one for the id, one for those that expire"
    reply = driver.try_init(timeout_ms=500)
    who = Identity(reply.producer_id, reply.producer_epoch)
    driver.add(who, A0)
    driver.pass_time(499)
    assert driver.state() is S.ONGOING
    driver.pass_time(1)
    assert driver.state() is S.PREPARE_ABORT


def test_an_id_must_fit_into_a_record() -> None:
    driver = TransactionDriver(TransactionConfig(record_bytes_max=1000))
    assert driver.try_init("x" * 1000).error_code == ErrorCode.INVALID_REQUEST
    assert not driver.log


def test_many_unused_ids_are_forgotten_in_portions() -> None:
    driver = TransactionDriver(TransactionConfig(id_expiration_ms=1000, expiration_check_interval_ms=5000))
    for number in range(FORGOTTEN_AT_ONCE_MAX + 1):
        driver.init(f"x{number}")
    driver.now_ms += 5000
    del driver.timers["expiry"]
    driver.perform(driver.shard.on_timer("expiry", driver.now_ms))
    assert len(list(driver.shard)) == 1
    driver.pass_time(0)
    assert not list(driver.shard)


# --- two-phase commits (KIP-939) ---


def test_two_phase_commits_have_to_be_allowed(driver: TransactionDriver) -> None:
    for reply in (driver.try_init(two_phase=True), driver.try_init(keep_prepared=True)):
        assert reply.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transaction_of_a_two_phase_commit_never_times_out() -> None:
    driver = TransactionDriver(TWO_PHASE)
    who = driver.init(two_phase=True)
    assert driver.known().timeout_ms == FOREVER_MS
    driver.add(who, A0, version=TV2)
    driver.pass_time(2 * TWO_PHASE.id_expiration_ms)
    assert driver.state() is S.ONGOING


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("reloaded", [False, True])
def test_whoever_comes_back_finds_what_was_prepared_and_ends_it(*, commit: bool, reloaded: bool) -> None:
    driver = TransactionDriver(TWO_PHASE)
    first = driver.init(two_phase=True)
    driver.add(first, A0, version=TV2)
    reply = driver.try_init(two_phase=True, keep_prepared=True)
    back = Identity(reply.producer_id, reply.producer_epoch)
    assert (reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) == first
    assert back == (first.producer_id, first.epoch + 1)
    if reloaded:
        driver.reload()
    assert driver.refused_end(first, commit=commit, version=TV2) is ErrorCode.PRODUCER_FENCED
    assert driver.add(first, A1, version=TV2) is ErrorCode.PRODUCER_FENCED
    assert driver.add(back, A1, version=TV2) is ErrorCode.INVALID_TXN_STATE
    assert driver.add(back, A0, verify_only=True) is ErrorCode.INVALID_TXN_STATE
    given = driver.end(back, commit=commit, version=TV2)
    assert given == (first.producer_id, back.epoch + 1)
    if reloaded:
        driver.reload()
    assert driver.write_markers() == [
        SendMarkers("x", first.producer_id, first.epoch + 1, commit, frozenset({A0}), TV2)
    ]
    assert driver.end(back, commit=commit, version=TV2) == given
    assert driver.add(given, A0, version=TV2) is ErrorCode.NONE


def test_coming_back_without_looking_aborts_what_was_prepared() -> None:
    driver = TransactionDriver(TWO_PHASE)
    first = driver.init(two_phase=True)
    driver.add(first, A0, version=TV2)
    back = driver.try_init(two_phase=True, keep_prepared=True)
    assert driver.try_init(two_phase=True).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    (sent,) = driver.write_markers()
    assert (sent.producer_epoch, sent.committed) == (first.epoch + 1, False)
    assert driver.init(two_phase=True).epoch > back.producer_epoch + 1


def test_with_nothing_prepared_coming_back_is_like_any_other_beginning() -> None:
    driver = TransactionDriver(TWO_PHASE)
    driver.init(two_phase=True)
    reply = driver.try_init(two_phase=True, keep_prepared=True)
    assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, 1)
    assert (reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) == NOBODY


def test_coming_back_at_the_last_epoch_goes_on_with_another_producer_id() -> None:
    driver = TransactionDriver(TWO_PHASE)
    driver.init(two_phase=True)
    last = driver.age(LAST_EPOCH_GIVEN)
    driver.add(last, A0, version=TV2)
    reply = driver.try_init(two_phase=True, keep_prepared=True)
    back = Identity(reply.producer_id, reply.producer_epoch)
    assert back == (last.producer_id + 1, 0)
    given = driver.end(back, commit=True, version=TV2)
    (sent,) = driver.write_markers()
    assert (sent.producer_id, sent.producer_epoch) == (last.producer_id, EPOCH_MAX)
    assert given == (back.producer_id, 1)
    assert driver.known().identity == given


# --- what is stored ---


def test_a_state_that_nobody_knows_is_not_loaded(driver: TransactionDriver) -> None:
    driver.init()
    value = driver.known().value()
    value.transaction_status = 9
    with pytest.raises(BrokerError) as refused:
        driver.shard.apply(driver.known().key(), value)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# --- administration ---


def test_a_transaction_is_described(driver: TransactionDriver) -> None:
    who = driver.init()
    driver.add(who, A1, A0, B0)
    shown = driver.ask(
        DescribeTransactionsRequest(transactional_ids=["x"]), TV1, describe_transactions.TransactionState
    )
    assert (shown.error_code, shown.transaction_state, shown.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (shown.producer_id, shown.producer_epoch, shown.transaction_start_time_ms) == (*who, driver.now_ms)
    assert [(topic.topic, topic.partitions) for topic in shown.topics] == [("a", [0, 1]), ("b", [0])]
    none = driver.ask(DescribeTransactionsRequest(transactional_ids=["y"]), TV1, describe_transactions.TransactionState)
    assert none.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def listing(driver: TransactionDriver, **filters: object) -> ListTransactionsResponse:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    for name, value in filters.items():
        setattr(request, name, value)
    return driver.ask(request, TV1, ListTransactionsResponse)


def names(reply: ListTransactionsResponse) -> set[str]:
    return {each.transactional_id for each in reply.transaction_states}


def test_transactions_are_listed_by_state_producer_age_and_name(driver: TransactionDriver) -> None:
    driver.init("idle")
    old = driver.init("old")
    driver.add(old, A0, name="old")
    driver.pass_time(1000)
    driver.add(driver.init("new"), A0, name="new")
    assert names(listing(driver)) == {"idle", "old", "new"}
    assert names(listing(driver, state_filters=["Ongoing"])) == {"old", "new"}
    assert names(listing(driver, producer_id_filters=[old.producer_id])) == {"old"}
    assert names(listing(driver, duration_filter=500)) == {"old"}
    assert names(listing(driver, transactional_id_pattern="(i|o).*")) == {"idle", "old"}
    unknown = listing(driver, state_filters=["Ongoing", "Lost"])
    assert unknown.unknown_state_filters == ["Lost"]
    assert names(unknown) == {"old", "new"}
    assert names(listing(driver, state_filters=["Lost"])) == set()
    assert listing(driver, transactional_id_pattern="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
