"""AlterPartition: only for the leader itself, in both versions."""

from __future__ import annotations

import pytest
from controller_at_hand import Desk, refused_everywhere, with_controller

from tidelog.errors import ErrorCode
from tidelog.handlers.alter_partition import HANDLER
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData


def proposal(desk: Desk, version: int, *isr: int, broker_epoch: int | None = None) -> AlterPartitionRequest:
    asked = PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
    if version >= 3:
        asked.new_isr_with_epochs = [BrokerState(broker_id=each, broker_epoch=desk.epoch(each)) for each in isr]
    else:
        asked.new_isr = list(isr)
    return AlterPartitionRequest(
        broker_id=1,
        broker_epoch=desk.epoch(1) if broker_epoch is None else broker_epoch,
        topics=[TopicData(topic_id=desk.controller.state.topics["t"].topic_id, partitions=[asked])],
    )


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_gets_what_it_asks_for(version: int) -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2, 3]})
        reply = await desk.ask(HANDLER, proposal(desk, version, 1, 3), version=version, as_broker=1)
        (answer,) = reply.topics[0].partitions
        assert (reply.error_code, answer.error_code) == (0, 0)
        assert (answer.leader_id, answer.isr, answer.partition_epoch) == (1, [1, 3], 1)
        assert desk.partition().isr == (1, 3)

    with_controller(story)


@pytest.mark.parametrize("sender", [None, 2])
def test_nobody_else_may_ask_in_its_name(sender: int | None) -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2, 3]})
        reply = await desk.ask(HANDLER, proposal(desk, 3, 1), as_broker=sender)
        assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert desk.partition().isr == (1, 2, 3)

    with_controller(story)


def test_an_earlier_life_of_the_broker_is_refused() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2, 3]})
        reply = await desk.ask(HANDLER, proposal(desk, 3, 1, broker_epoch=0), as_broker=1)
        assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH

    with_controller(story)


def test_only_the_controller_answers() -> None:
    refused_everywhere(HANDLER, AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[]), as_broker=1)
