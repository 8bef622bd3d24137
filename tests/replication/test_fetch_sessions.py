"""Incremental fetch sessions (KIP-227): what is remembered, what is told again, what is refused."""

from __future__ import annotations

from itertools import count

import pytest

from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.fetch_sessions import FetchScope, FetchSessions, Wanted
from tidelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

BY_NAME, BY_ID = 12, 13


def sessions(slots: int = 10) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, eviction_ms=1000, new_id=lambda: next(ids))


def a_request(
    *partitions: int,
    session_id: int = 0,
    epoch: int = 0,
    offset: int = 0,
    forget: tuple[int, ...] = (),
    topic_id: bytes = bytes(16),
) -> FetchRequest:
    topic = "" if any(topic_id) else "t"
    wanted = [FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=100) for each in partitions]
    forgotten = [ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forget))] if forget else []
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)] if wanted else [],
        forgotten_topics_data=forgotten,
    )


def told(scope: FetchScope, data: dict[int, PartitionData]) -> list[int]:
    return [wanted.partition for wanted, _ in scope.select((each, data[each.partition]) for each in scope.wanted)]


def quiet(partition: int, high_watermark: int = 5, records: bytes = b"", error: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )


def partitions_of(scope: FetchScope) -> list[int]:
    return [wanted.partition for wanted in scope.wanted]


def refusal(cache: FetchSessions, request: FetchRequest, version: int = BY_NAME) -> ErrorCode:
    with pytest.raises(BrokerError) as error:
        cache.scope(request, version, 0)
    return error.value.code


def test_epoch_minus_one_asks_for_no_session() -> None:
    cache = sessions()
    scope = cache.scope(a_request(0, 1, epoch=-1), BY_NAME, 0)
    assert (scope.session_id, partitions_of(scope), len(cache)) == (0, [0, 1], 0)


def test_epoch_zero_opens_a_session_and_later_epochs_go_on_with_it() -> None:
    cache = sessions()
    first = cache.scope(a_request(0, 1), BY_NAME, 0)
    second = cache.scope(a_request(session_id=first.session_id, epoch=1), BY_NAME, 0)
    assert first.session_id == second.session_id != 0
    assert partitions_of(second) == [0, 1]


def test_a_session_learns_new_offsets_and_partitions_and_forgets_on_request() -> None:
    cache = sessions()
    opened = cache.scope(a_request(0, 1), BY_NAME, 0)
    scope = cache.scope(a_request(1, 2, session_id=opened.session_id, epoch=1, offset=9, forget=(0,)), BY_NAME, 0)
    assert [(wanted.partition, wanted.fetch_offset) for wanted in scope.wanted] == [(1, 9), (2, 9)]


def test_the_first_reply_tells_all_and_later_ones_only_news() -> None:
    cache = sessions()
    scope = cache.scope(a_request(0, 1, 2), BY_NAME, 0)
    assert told(scope, {each: quiet(each) for each in range(3)}) == [0, 1, 2]
    scope = cache.scope(a_request(session_id=scope.session_id, epoch=1), BY_NAME, 0)
    assert told(scope, {each: quiet(each) for each in range(3)}) == []
    scope = cache.scope(a_request(session_id=scope.session_id, epoch=2), BY_NAME, 0)
    assert told(scope, {0: quiet(0), 1: quiet(1, high_watermark=6), 2: quiet(2, records=b"x")}) == [1, 2]


def test_an_error_is_told_again_until_it_is_gone_and_then_so_is_the_recovery() -> None:
    cache = sessions()
    scope = cache.scope(a_request(0), BY_NAME, 0)
    for epoch in (1, 2):
        assert told(scope, {0: quiet(0, error=3)}) == [0]
        scope = cache.scope(a_request(session_id=scope.session_id, epoch=epoch), BY_NAME, 0)
    assert told(scope, {0: quiet(0)}) == [0]


def test_where_to_cut_or_read_instead_is_told_though_nothing_else_has_changed() -> None:
    cache = sessions()
    scope = cache.scope(a_request(0, 1, 2), BY_NAME, 0)
    told(scope, {each: quiet(each) for each in range(3)})
    scope = cache.scope(a_request(session_id=scope.session_id, epoch=1), BY_NAME, 0)
    diverged, moved = quiet(0), quiet(1)
    diverged.diverging_epoch = EpochEndOffset(epoch=1, end_offset=3)
    moved.preferred_read_replica = 2
    assert told(scope, {0: diverged, 1: moved, 2: quiet(2)}) == [0, 1]


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "log_start", "again"),
    [(5, 1, 0, True), (5, 1, 3, True), (4, 1, 0, True), (5, 2, 0, True), (6, 2, 0, True), (6, 1, 0, False)],
    ids=["the same", "another start", "cut back", "new reign", "further in a new reign", "further"],
)
def test_who_has_not_surely_taken_what_it_was_told_is_told_again(
    offset: int, leader_epoch: int, log_start: int, again: bool
) -> None:
    def named(offset: int, leader_epoch: int, log_start: int) -> list[FetchTopic]:
        part = FetchPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=leader_epoch,
            log_start_offset=log_start,
            partition_max_bytes=100,
        )
        return [FetchTopic(topic="t", partitions=[part])]

    cache = sessions()
    opening = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=named(5, 1, 0))
    scope = cache.scope(opening, BY_NAME, 0)
    told(scope, {0: quiet(0)})
    scope.wanted[0].note = "seen"
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=scope.session_id,
        session_epoch=1,
        topics=named(offset, leader_epoch, log_start),
    )
    scope = cache.scope(request, BY_NAME, 0)
    assert scope.wanted[0].note is None
    assert told(scope, {0: quiet(0)}) == ([0] if again else [])


def test_partitions_that_gave_data_go_to_the_back_so_that_none_starves() -> None:
    cache = sessions()
    scope = cache.scope(a_request(0, 1, 2), BY_NAME, 0)
    told(scope, {0: quiet(0, records=b"x"), 1: quiet(1), 2: quiet(2)})
    scope = cache.scope(a_request(session_id=scope.session_id, epoch=1), BY_NAME, 0)
    assert partitions_of(scope) == [1, 2, 0]


def test_an_unknown_session_is_refused() -> None:
    assert refusal(sessions(), a_request(session_id=99, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_wrong_epoch_is_refused_and_the_session_stays(epoch: int) -> None:
    cache = sessions()
    opened = cache.scope(a_request(0), BY_NAME, 0)
    assert refusal(cache, a_request(session_id=opened.session_id, epoch=epoch)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.scope(a_request(session_id=opened.session_id, epoch=1), BY_NAME, 0).wanted


def test_a_session_by_name_cannot_go_on_by_id() -> None:
    cache = sessions()
    opened = cache.scope(a_request(0), BY_NAME, 0)
    request = a_request(session_id=opened.session_id, epoch=1)
    assert refusal(cache, request, BY_ID) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_sessions_by_id_tell_topics_apart() -> None:
    cache = sessions()
    one, other = bytes(15) + b"\x01", bytes(15) + b"\x02"
    opened = cache.scope(a_request(0, topic_id=one), BY_ID, 0)
    scope = cache.scope(a_request(0, session_id=opened.session_id, epoch=1, topic_id=other), BY_ID, 0)
    assert [wanted.topic_id for wanted in scope.wanted] == [one, other]


def test_epoch_minus_one_closes_a_session() -> None:
    cache = sessions()
    opened = cache.scope(a_request(0), BY_NAME, 0)
    cache.scope(a_request(0, session_id=opened.session_id, epoch=-1), BY_NAME, 0)
    assert len(cache) == 0


def test_when_all_slots_are_in_use_a_reader_goes_on_without_a_session() -> None:
    cache = sessions(slots=1)
    cache.scope(a_request(0), BY_NAME, 0)
    assert cache.scope(a_request(0), BY_NAME, 999).session_id == 0


def test_a_session_unused_for_long_makes_room() -> None:
    cache = sessions(slots=1)
    old = cache.scope(a_request(0), BY_NAME, 0)
    assert cache.scope(a_request(0), BY_NAME, 1000).session_id != 0
    assert refusal(cache, a_request(session_id=old.session_id, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_wraps_past_zero() -> None:
    cache = sessions()
    opened = cache.scope(a_request(0), BY_NAME, 0)
    assert opened.session is not None
    opened.session.next_epoch = 2**31 - 1
    cache.scope(a_request(session_id=opened.session_id, epoch=2**31 - 1), BY_NAME, 0)
    assert opened.session.next_epoch == 1


def test_a_partition_is_keyed_by_name_or_by_id() -> None:
    by_name = Wanted("t", bytes(16), 3, 0, 1, -1, -1)
    by_id = Wanted("", b"i" * 16, 3, 0, 1, -1, -1)
    assert (by_name.key, by_id.key) == (("t", 3), (b"i" * 16, 3))
