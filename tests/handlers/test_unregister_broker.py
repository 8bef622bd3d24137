"""UnregisterBroker: only for brokers that are away and known."""

from __future__ import annotations

from controller_at_hand import Desk, refused_everywhere, with_controller

from tidelog.errors import ErrorCode
from tidelog.handlers.unregister_broker import HANDLER
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest


def test_a_broker_that_is_away_is_forgotten() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [2, 3]})
        running = await desk.ask(HANDLER, UnregisterBrokerRequest(broker_id=3))
        assert running.error_code == ErrorCode.INVALID_REQUEST
        assert running.error_message
        await desk.kill(3)
        assert (await desk.ask(HANDLER, UnregisterBrokerRequest(broker_id=3))).error_code == ErrorCode.NONE
        unknown = await desk.ask(HANDLER, UnregisterBrokerRequest(broker_id=77))
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    with_controller(story)


def test_only_the_controller_answers() -> None:
    refused_everywhere(HANDLER, UnregisterBrokerRequest(broker_id=3))
