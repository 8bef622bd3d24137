"""The simulated network: order within a connection, loss, cuts, machines that stop, and late arrivals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.errors import PeerUnreachable
from tidelog.handlers import api_versions
from tidelog.net.outgoing import Outgoing, Parked
from tidelog.testing.sim.world import World
from tidelog.wire.headers import encode_response, read_request_header, request_reader
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from tidelog.net.outgoing import Outcome, Reply

TIMEOUT_S = 4.0


class Echo:
    """A machine that answers each request with the number in it, at once or when told to."""

    def __init__(self, world: World) -> None:
        self.loop = world.new_loop("echo")
        self.served: dict[int, Any] = {ApiVersionsRequest.API: api_versions.HANDLER}
        self.service = self
        self.asked: list[str] = []
        self.peers: list[int | None] = []
        self.parked: list[tuple[asyncio.Future[Reply], Outgoing]] = []
        self.park = False

    def handle(self, connection: Any, frame: memoryview) -> Outcome:
        header = read_request_header(frame)
        request = request_reader(ApiVersionsRequest, header.version)(frame, header.body)
        self.asked.append(request.client_software_name)
        self.peers.append(connection.service_state.peer_broker)
        reply = ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=int(request.client_software_name))
        outgoing = Outgoing(encode_response(reply, header.version, header.correlation_id)[0])
        if not self.park:
            return outgoing
        self.parked.append((self.loop.create_future(), outgoing))
        return Parked(self.parked[-1][0])


class Caller:
    def __init__(self, world: World, address: int | str = 1) -> None:
        self.loop = world.new_loop("caller")
        self.send = world.network.sender(address, self.loop, "test", TIMEOUT_S)

    async def ask(self, number: int) -> int:
        request = ApiVersionsRequest(client_software_name=str(number), client_software_version="1")
        reply = await self.send(2, request)
        assert isinstance(reply, ApiVersionsResponse)
        return reply.throttle_time_ms


def pair(world: World, address: int | str = 1) -> tuple[Caller, Echo]:
    echo = Echo(world)
    world.network.attach(2, echo)
    return Caller(world, address), echo


def test_a_connection_keeps_its_order() -> None:
    with World(1) as world:
        caller, echo = pair(world)

        async def play() -> list[int]:
            return await asyncio.gather(*(caller.ask(number) for number in range(20)))

        assert world.run(play(), caller.loop, within_s=10) == list(range(20))
        assert echo.asked == [str(number) for number in range(20)]
        assert set(echo.peers) == {1}


def test_who_has_no_number_is_no_broker() -> None:
    with World(1) as world:
        caller, echo = pair(world, "a client")
        world.run(caller.ask(1), caller.loop, within_s=10)
        assert echo.peers == [None]


def test_parked_replies_hold_up_only_what_comes_after_them() -> None:
    with World(1) as world:
        caller, echo = pair(world)
        echo.park = True
        first = caller.loop.create_task(caller.ask(1))
        world.timeline.run_until(1)
        echo.park = False
        second = caller.loop.create_task(caller.ask(2))
        world.timeline.run_until(2)
        assert echo.asked == ["1", "2"]
        assert not second.done()
        future, outgoing = echo.parked[0]
        echo.loop.call_soon(future.set_result, outgoing)
        world.timeline.run_until(3)
        assert (first.result(), second.result()) == (1, 2)


def test_nobody_there_is_told_at_once() -> None:
    with World(1) as world:
        caller = Caller(world)
        with pytest.raises(PeerUnreachable):
            world.run(caller.ask(1), caller.loop, within_s=1)


def test_a_killed_machine_breaks_its_connections_and_its_successor_is_reached() -> None:
    with World(1) as world:
        caller, echo = pair(world)
        echo.park = True
        asked = caller.loop.create_task(caller.ask(1))
        world.timeline.run_until(1)
        echo.loop.kill()
        world.network.detach(2, silently=False)
        world.timeline.run_until(2)
        with pytest.raises(PeerUnreachable):
            asked.result()
        world.network.attach(2, Echo(world))
        assert world.run(caller.ask(2), caller.loop, within_s=1) == 2


def test_a_machine_without_power_says_nothing() -> None:
    with World(1) as world:
        caller, echo = pair(world)
        echo.park = True
        asked = caller.loop.create_task(caller.ask(1))
        world.timeline.run_until(1)
        echo.loop.kill()
        world.network.detach(2, silently=True)
        world.timeline.run_until(TIMEOUT_S - 0.1)
        assert not asked.done()
        world.timeline.run_until(TIMEOUT_S + 1)
        with pytest.raises(PeerUnreachable, match="in time"):
            asked.result()


def test_a_cut_holds_messages_up_and_they_may_come_after_their_sender_gave_up() -> None:
    arrived = []
    for seed in range(20):
        with World(seed) as world:
            caller, echo = pair(world)
            world.network.cut(1, 2)
            asked = caller.loop.create_task(caller.ask(1))
            world.timeline.run_until(TIMEOUT_S + 1)
            assert isinstance(asked.exception(), PeerUnreachable)
            assert not echo.asked
            world.network.heal(1, 2)
            world.timeline.run_until(TIMEOUT_S + 2)
            arrived.append(bool(echo.asked))
            assert world.run(caller.ask(2), caller.loop, within_s=2) == 2
    assert set(arrived) == {True, False}


def test_a_cut_one_way_loses_answers_only() -> None:
    with World(3) as world:
        caller, echo = pair(world)
        world.network.cut(2, 1)
        asked = caller.loop.create_task(caller.ask(1))
        world.timeline.run_until(TIMEOUT_S + 1)
        assert isinstance(asked.exception(), PeerUnreachable)
        assert echo.asked == ["1"]


def test_what_a_frozen_machine_is_sent_is_answered_when_it_thaws() -> None:
    with World(3) as world:
        caller, echo = pair(world)
        echo.loop.freeze()
        asked = caller.loop.create_task(caller.ask(1))
        world.timeline.run_until(2)
        assert not echo.asked
        echo.loop.thaw()
        world.timeline.run_until(3)
        assert asked.result() == 1


def test_lost_messages_break_the_connection() -> None:
    with World(5) as world:
        caller, _echo = pair(world)
        world.network.weather.loss_chance = 1.0
        with pytest.raises(PeerUnreachable, match="lost"):
            world.run(caller.ask(1), caller.loop, within_s=1)
        world.network.weather.loss_chance = 0.0
        assert world.run(caller.ask(2), caller.loop, within_s=1) == 2


def test_the_peer_hears_of_a_connection_that_was_given_up() -> None:
    with World(5) as world:
        caller, echo = pair(world)
        echo.park = True
        asked = caller.loop.create_task(caller.ask(1))
        world.timeline.run_until(TIMEOUT_S + 1)
        assert asked.done()
        assert echo.parked[0][0].cancelled()


def test_one_seed_gives_one_trace() -> None:
    def play(seed: int) -> str:
        with World(seed) as world:
            caller, _echo = pair(world)
            world.network.weather.loss_chance = 0.1

            async def ask_often() -> None:
                for number in range(50):
                    try:
                        await caller.ask(number)
                    except PeerUnreachable:
                        world.note("test", "lost")

            world.run(ask_often(), caller.loop, within_s=100)
            return world.trace.fingerprint

    assert play(1) == play(1)
    assert play(1) != play(2)
