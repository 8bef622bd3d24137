"""Moving a partition: adding, in sync, dropping; or back again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.controller.image import NO_LEADER, PartitionImage
from tidelog.controller.reassignment import begin, cancel, completed, origin_of, target_of
from tidelog.errors import BrokerError, ErrorCode

LIVE = {1, 2, 3, 4, 5}
AT_REST = PartitionImage((1, 2), (1, 2), 1, 7, 3)


def no_observers(_replicas: object) -> tuple[int, ...]:
    return ()


def begun(partition: PartitionImage, *target: int) -> PartitionImage:
    after = begin(partition, target, LIVE, no_observers)
    assert after is not None
    return after


def in_sync(partition: PartitionImage, *isr: int) -> PartitionImage:
    return replace(partition, isr=isr, partition_epoch=partition.partition_epoch + 1)


def test_a_move_adds_waits_and_drops() -> None:
    moving = begun(AT_REST, 3, 4)
    assert moving == PartitionImage((3, 4, 1, 2), (1, 2), 1, 8, 4, adding=(3, 4), removing=(1, 2))
    assert (target_of(moving), origin_of(moving)) == ((3, 4), (1, 2))
    assert completed(moving, LIVE) is None
    assert completed(in_sync(moving, 1, 2, 3), LIVE) is None
    done = completed(in_sync(moving, 1, 2, 3, 4), LIVE)
    assert done == PartitionImage((3, 4), (3, 4), 3, 9, 6)


def test_a_leader_that_stays_goes_on_leading() -> None:
    done = completed(in_sync(begun(AT_REST, 3, 1), 1, 2, 3), LIVE)
    assert done == PartitionImage((3, 1), (1, 3), 1, 9, 6)


def test_fewer_replicas_are_a_move_that_adds_nothing() -> None:
    moving = begun(AT_REST, 2)
    assert completed(moving, LIVE) == PartitionImage((2,), (2,), 2, 9, 5)


def test_another_order_is_done_at_once() -> None:
    assert begun(AT_REST, 2, 1) == PartitionImage((2, 1), (1, 2), 1, 8, 4)


def test_what_is_there_already_is_not_moved() -> None:
    assert begin(AT_REST, (1, 2), LIVE, no_observers) is None
    assert begin(begun(AT_REST, 3, 4), (3, 4), LIVE, no_observers) is None


def test_cancelling_restores_the_replicas() -> None:
    moving = in_sync(begun(AT_REST, 3, 4), 1, 2, 3)
    assert cancel(moving, LIVE, no_observers) == PartitionImage((1, 2), (1, 2), 1, 9, 6)


def test_cancelling_takes_the_leadership_back_from_a_new_replica() -> None:
    moving = replace(in_sync(begun(AT_REST, 3, 4), 3, 2), leader=3)
    assert cancel(moving, LIVE, no_observers).leader == 2


def test_cancelling_when_only_new_replicas_have_the_records_is_refused() -> None:
    moving = replace(in_sync(begun(AT_REST, 3, 4), 3), leader=3)
    with pytest.raises(BrokerError) as refused:
        cancel(moving, LIVE, no_observers)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_there_must_be_a_move_to_cancel() -> None:
    with pytest.raises(BrokerError) as refused:
        cancel(AT_REST, LIVE, no_observers)
    assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_under_way_can_be_sent_elsewhere() -> None:
    moving = in_sync(begun(AT_REST, 3, 4), 1, 2, 3)
    diverted = begun(moving, 5, 1)
    assert diverted == PartitionImage((5, 1, 2), (1, 2), 1, 9, 6, adding=(5,), removing=(2,))


def test_a_move_to_where_it_was_cancels_the_one_under_way() -> None:
    assert begun(in_sync(begun(AT_REST, 3, 4), 1, 2, 3), 1, 2) == PartitionImage((1, 2), (1, 2), 1, 9, 6)


def test_observers_are_not_waited_for() -> None:
    moving = begin(AT_REST, (3, 4), LIVE, lambda replicas: (4,) if 4 in replicas else ())
    assert moving is not None
    assert completed(in_sync(moving, 1, 2, 3), LIVE) == PartitionImage((3, 4), (3,), 3, 9, 6, observers=(4,))


def test_a_move_does_not_end_without_anybody_to_lead() -> None:
    moving = in_sync(begun(AT_REST, 3), 1, 2, 3)
    assert completed(moving, {1, 2}) is None


def test_a_partition_without_a_leader_can_be_moved() -> None:
    lost = PartitionImage((1, 2), (1,), NO_LEADER, 7, 3)
    assert begin(lost, (2, 3), {2, 3}, no_observers) == PartitionImage(
        (2, 3, 1), (1,), NO_LEADER, 8, 4, adding=(3,), removing=(1,)
    )


@pytest.mark.parametrize("target", [(), (3, 3), (3, 9), (-1,)])
def test_impossible_targets_are_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(BrokerError) as refused:
        begin(AT_REST, target, LIVE, no_observers)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_target_of_observers_alone_is_refused() -> None:
    with pytest.raises(BrokerError) as refused:
        begin(AT_REST, (3,), LIVE, tuple)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_replica_that_is_away_may_stay_in_the_target() -> None:
    moving = begin(AT_REST, (2, 3), {1, 3}, no_observers)
    assert moving is not None
    assert moving.adding == (3,)
