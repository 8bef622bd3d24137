"""Static members of groups of the newer protocol: a place that outlives the member that fills it."""

from __future__ import annotations

import pytest
from consumer_readers import ConsumerDriver, Reader, owned_of, settle

from tidelog.errors import ErrorCode


def settled_pair() -> tuple[ConsumerDriver, Reader, Reader]:
    driver = ConsumerDriver(t=4)
    one, other = Reader(driver, "m1", instance_id="i1"), Reader(driver, "m2", instance_id="i2")
    settle([one, other])
    assert [len(one.reading), len(other.reading)] == [2, 2]
    return driver, one, other


def test_one_that_leaves_for_a_while_comes_back_to_what_it_had() -> None:
    driver, one, other = settled_pair()
    had, epoch, mark = set(one.reading), one.epoch, len(driver.log)
    assert one.leave(-2) == ErrorCode.NONE
    assert driver.kinds_since(mark) == ["8"], "nothing but that it is away"
    mark = len(driver.log)
    reply = driver.enter_new("m1-again", instance_id="i1")
    assert reply.member_epoch == epoch, "nobody else had to notice"
    assert owned_of(reply, driver) == had
    assert driver.kinds_since(mark) == ["-8", "-7", "-5", "5", "7", "8", "8"]
    assert other.beat() == ErrorCode.NONE
    assert other.epoch == epoch
    assert other.told is None


def test_leaving_for_a_while_is_answered_with_its_epoch() -> None:
    driver, one, _other = settled_pair()
    reply = driver.beat(one.member_id, -2, instance_id="i1")
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (ErrorCode.NONE, "m1", -2)


def test_who_stays_away_too_long_loses_its_place() -> None:
    driver, one, other = settled_pair()
    one.leave(-2)
    for _ in range(9):
        driver.advance(5_000)
        other.beat()
        other.obey()
    settle([other])
    assert len(other.reading) == 4
    assert driver.consumer_describe().members[0].member_id == "m2"


def test_a_place_that_is_taken_is_not_given_away() -> None:
    driver, _one, _other = settled_pair()
    reply = driver.enter_new("intruder", instance_id="i1")
    assert reply.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "m1" in (reply.error_message or "")


def test_the_one_before_is_fenced() -> None:
    driver, one, _other = settled_pair()
    epoch = one.epoch
    one.leave(-2)
    driver.enter_new("m1-again", instance_id="i1")
    assert driver.beat("m1", epoch, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat("m1", -1, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat("m1", -2, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat("m1", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(45_000)
    assert driver.beat("m1-again", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID, "its own session, not the former's"


def test_the_session_of_the_one_who_comes_back_begins_when_it_does() -> None:
    driver, one, other = settled_pair()
    epoch = one.epoch
    one.leave(-2)
    driver.advance(30_000)
    other.beat()
    driver.enter_new("m1-again", instance_id="i1")
    driver.advance(40_000)
    assert driver.beat("m1-again", epoch, instance_id="i1").error_code == ErrorCode.NONE


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_an_instance_that_nobody_knows(epoch: int) -> None:
    driver, _one, _other = settled_pair()
    assert driver.beat("m1", epoch, instance_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_for_good_gives_the_place_up() -> None:
    driver, one, other = settled_pair()
    assert one.leave(-1) == ErrorCode.NONE
    settle([other])
    assert len(other.reading) == 4
    assert driver.enter_new("m3", instance_id="i1").error_code == ErrorCode.NONE


def test_coming_back_with_another_subscription_divides_anew() -> None:
    driver, one, other = settled_pair()
    driver.topics.counts["u"] = 2
    epoch = one.epoch
    one.leave(-2)
    back = Reader(driver, "m1-again", "u", instance_id="i1")
    driver.advance(1000)
    settle([back, other])
    assert back.reading == {("u", 0), ("u", 1)}
    assert other.reading == {("t", 0), ("t", 1), ("t", 2), ("t", 3)}
    assert back.epoch > epoch


def test_what_it_was_to_let_go_of_is_free_once_it_is_away() -> None:
    driver = ConsumerDriver(t=2)
    one, other = Reader(driver, "m1", instance_id="i1"), Reader(driver, "m2")
    one.beat()
    one.obey()
    driver.advance(1000)
    other.beat()
    one.beat()
    assert len(one.told or ()) == 1
    assert driver.beat("m1", -2, instance_id="i1").error_code == ErrorCode.NONE
    other.beat()
    other.obey()
    assert len(other.reading) == 1
    driver.advance(44_000)  # the time in which it would have had to let go does not throw it out
    assert driver.enter_new("m1-again", instance_id="i1").error_code == ErrorCode.NONE


def test_a_restart_of_the_coordinator_keeps_the_place() -> None:
    driver, one, _other = settled_pair()
    had = set(one.reading)
    one.leave(-2)
    driver.reload()
    assert owned_of(driver.enter_new("m1-again", instance_id="i1"), driver) == had
