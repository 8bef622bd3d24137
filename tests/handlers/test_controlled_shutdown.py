"""ControlledShutdown: leaders move away, and what cannot is told."""

from __future__ import annotations

import pytest
from controller_at_hand import Desk, refused_everywhere, with_controller

from tidelog.errors import ErrorCode
from tidelog.handlers.controlled_shutdown import HANDLER
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest


@pytest.mark.parametrize("version", [2, 3])
def test_leaders_move_and_what_remains_is_named(version: int) -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [2, 3], 1: [2, 1]})
        await desk.kill(3)
        request = ControlledShutdownRequest(broker_id=2, broker_epoch=desk.epoch(2))
        reply = await desk.ask(HANDLER, request, version=version, as_broker=2)
        assert reply.error_code == 0
        assert [(each.topic_name, each.partition_index) for each in reply.remaining_partitions] == [("t", 0)]
        assert desk.partition(1).leader == 1

    with_controller(story)


@pytest.mark.parametrize("sender", [None, 3])
def test_nobody_can_stop_another_broker(sender: int | None) -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [2, 3]})
        request = ControlledShutdownRequest(broker_id=2, broker_epoch=desk.epoch(2))
        reply = await desk.ask(HANDLER, request, as_broker=sender)
        assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert desk.partition().leader == 2

    with_controller(story)


def test_an_earlier_life_of_the_broker_is_refused() -> None:
    async def story(desk: Desk) -> None:
        request = ControlledShutdownRequest(broker_id=2, broker_epoch=desk.epoch(2) - 1)
        reply = await desk.ask(HANDLER, request, as_broker=2)
        assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH

    with_controller(story)


def test_only_the_controller_answers() -> None:
    refused_everywhere(HANDLER, ControlledShutdownRequest(broker_id=1, broker_epoch=1), as_broker=1)
