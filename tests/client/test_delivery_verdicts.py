from __future__ import annotations

import pytest

from tidelog.client.delivery import Verdict, judge, leaves_doubt, metadata_is_stale
from tidelog.errors import ErrorCode as E


@pytest.mark.parametrize(
    ("code", "count", "maybe_stored", "verdict"),
    [
        (E.NONE, 1, False, Verdict.DELIVERED),
        (E.NONE, 1, True, Verdict.DELIVERED),
        (E.DUPLICATE_SEQUENCE_NUMBER, 1, True, Verdict.DELIVERED),
        (E.NOT_LEADER_OR_FOLLOWER, 1, False, Verdict.RETRY),
        (E.REQUEST_TIMED_OUT, 1, True, Verdict.RETRY),
        (E.NOT_ENOUGH_REPLICAS, 1, False, Verdict.RETRY),
        (E.KAFKA_STORAGE_ERROR, 1, False, Verdict.RETRY),
        (E.MESSAGE_TOO_LARGE, 2, False, Verdict.SPLIT),
        (E.RECORD_LIST_TOO_LARGE, 2, False, Verdict.SPLIT),
        (E.MESSAGE_TOO_LARGE, 1, False, Verdict.FAIL),
        (E.MESSAGE_TOO_LARGE, 2, True, Verdict.FAIL),
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, False, Verdict.RENEW),
        (E.UNKNOWN_PRODUCER_ID, 1, False, Verdict.RENEW),
        (E.INVALID_PRODUCER_EPOCH, 1, False, Verdict.RENEW),
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, True, Verdict.FAIL),
        (E.TOPIC_AUTHORIZATION_FAILED, 1, False, Verdict.FAIL),
        (E.INVALID_RECORD, 5, False, Verdict.FAIL),
        (E.UNKNOWN_SERVER_ERROR, 1, False, Verdict.FAIL),
    ],
)
def test_each_answer_has_its_consequence(code: E, count: int, maybe_stored: bool, verdict: Verdict) -> None:
    assert judge(code, record_count=count, maybe_stored=maybe_stored) is verdict


def test_only_what_a_broker_may_have_stored_leaves_doubt() -> None:
    assert {code for code in E if leaves_doubt(code)} == {E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


def test_what_is_cured_by_new_metadata_is_worth_retrying() -> None:
    assert all(code.retriable for code in E if metadata_is_stale(code))
