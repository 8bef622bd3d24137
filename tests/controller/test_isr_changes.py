"""Which in-sync replicas a leader gets, and the error for those it does not."""

from __future__ import annotations

import pytest

from tidelog.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.controller.isr_changes import judge
from tidelog.controller.transitions import PartitionChange
from tidelog.errors import ErrorCode
from tidelog.types import TopicId
from tidelog.wire.messages.alter_partition import BrokerState, PartitionData

EPOCH = {broker_id: 100 + broker_id for broker_id in (1, 2, 3, 4)}


def an_image(partition: PartitionImage) -> ClusterImage:
    image = ClusterImage("cluster", 1)
    image.brokers = {each: BrokerImage(each, {}, epoch=epoch) for each, epoch in EPOCH.items()}
    image.put_topic(TopicImage("t", TopicId(b"t" * 16), [partition]))
    return image


PARTITION = PartitionImage((1, 2, 3, 4, 9), (1, 2), 1, 5, 8, observers=(4,))


def ask(
    isr: list[int],
    *,
    leader: int = 1,
    leader_epoch: int = 5,
    partition_epoch: int = 8,
    number: int = 0,
    recovering: bool = False,
    epochs: dict[int, int] | None = EPOCH,
    partition: PartitionImage = PARTITION,
    shutting_down: frozenset[int] = frozenset(),
) -> PartitionChange | ErrorCode:
    proposal = PartitionData(
        partition_index=number,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=int(recovering),
    )
    if epochs is None:
        proposal.new_isr = isr
    else:
        proposal.new_isr_with_epochs = [BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr]
    return judge(an_image(partition), shutting_down, leader, "t", proposal)


@pytest.mark.parametrize("isr", [[1], [1, 2, 3], [3, 1]])
@pytest.mark.parametrize("epochs", [EPOCH, None], ids=["with epochs", "without"])
def test_a_leader_gets_other_in_sync_replicas_in_its_own_epoch(isr: list[int], epochs: dict[int, int] | None) -> None:
    answer = ask(isr, epochs=epochs)
    assert isinstance(answer, PartitionChange)
    assert answer.partition == PartitionImage((1, 2, 3, 4, 9), tuple(isr), 1, 5, 9, observers=(4,))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ask([1], number=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ask([1], leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (ask([1], leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (ask([1], partition_epoch=7), ErrorCode.INVALID_UPDATE_VERSION),
        (ask([1], partition_epoch=9), ErrorCode.NOT_CONTROLLER),
        (ask([1, 2], leader=2), ErrorCode.INVALID_REQUEST),
        (ask([2]), ErrorCode.INVALID_REQUEST),
        (ask([]), ErrorCode.INVALID_REQUEST),
        (ask([1, 1]), ErrorCode.INVALID_REQUEST),
        (ask([1, 7]), ErrorCode.INVALID_REQUEST),
        (ask([1], recovering=True), ErrorCode.INVALID_REQUEST),
        (ask([1, 9]), ErrorCode.INELIGIBLE_REPLICA),
        (ask([1, 4]), ErrorCode.INELIGIBLE_REPLICA),
        (ask([1, 3], epochs={**EPOCH, 3: 77}), ErrorCode.INELIGIBLE_REPLICA),
        (ask([1, 2, 3], shutting_down=frozenset({3})), ErrorCode.INELIGIBLE_REPLICA),
        (ask([1, 2]), ErrorCode.NONE),
        (ask([1, 2], partition_epoch=7), ErrorCode.NONE),
    ],
    ids=[
        "no such partition",
        "an old leader",
        "a leader that knows more than we",
        "an old state",
        "a state that we do not know",
        "not the leader",
        "without the leader",
        "empty",
        "twice the same",
        "no replica",
        "recovering without cause",
        "a dead broker",
        "an observer",
        "an earlier life of a broker",
        "one that is about to stop",
        "as it is",
        "as it is, asked again",
    ],
)
def test_a_proposal_is_refused_with_the_error_that_helps(answer: PartitionChange | ErrorCode, error: ErrorCode) -> None:
    assert answer is error


def test_one_that_is_about_to_stop_need_not_leave_by_itself() -> None:
    assert isinstance(ask([1], shutting_down=frozenset({1, 2})), PartitionChange)


def test_an_unclean_leader_says_that_it_has_recovered() -> None:
    recovering = PartitionImage((1, 2), (1,), 1, 5, 8, recovering=True)
    assert ask([1, 2], recovering=True, partition=recovering) is ErrorCode.INVALID_REQUEST
    answer = ask([1, 2], partition=recovering)
    assert isinstance(answer, PartitionChange)
    assert not answer.partition.recovering
