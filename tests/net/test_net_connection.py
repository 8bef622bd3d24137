from __future__ import annotations

import asyncio
import logging
import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net_ends import Ends, FileRegion, ScriptedService, SetClock, both_loops, echo, file_region, framed, reply, until
from net_ends import turns as loop_turns

from tidelog.net.address import Address
from tidelog.net.limits import ConnectionLimits
from tidelog.net.outgoing import CLOSE, NO_REPLY, CloseConnection, NoReply, Outgoing, Parked
from tidelog.net.receive_buffer import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from net_ends import Run

    from tidelog.net.connection import Connection
    from tidelog.net.outgoing import Outcome, Reply


class Parking:
    """Answers every frame later, when the test says so."""

    def __init__(self) -> None:
        self.futures: dict[bytes, asyncio.Future[Reply]] = {}

    def __call__(self, payload: bytes) -> Outcome:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.futures[payload] = future
        return Parked(future)

    def resolve(self, payload: bytes) -> None:
        self.futures[payload].set_result(reply(payload))


# Answering


@both_loops
def test_replies_come_in_request_order(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            await ends.peer.send_frames(b"one", b"", b"three")
            assert await ends.peer.receive_frames(3) == [b"one", b"", b"three"]

    run(scenario())


@both_loops
def test_frames_arrive_whole_however_they_are_chopped(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            stream = framed(b"first") + framed(b"second" * 50)
            for position in range(len(stream)):
                await ends.peer.send(stream[position : position + 1])
                await asyncio.sleep(0)
            assert await ends.peer.receive_frames(2) == [b"first", b"second" * 50]

    run(scenario())


@both_loops
@pytest.mark.parametrize("size", [60_000, 65_536, 1 << 20, 5 << 20])
def test_large_frames_pass_both_ways(run: Run, size: int) -> None:
    async def scenario() -> None:
        payloads = [os.urandom(size) for _ in range(3)]
        async with Ends() as ends:
            sending = asyncio.create_task(ends.peer.send_frames(*payloads))
            assert await ends.peer.receive_frames(3) == payloads
            await sending

    run(scenario())


@both_loops
def test_the_frame_is_writable_and_without_prefix(run: Run) -> None:
    class Patching(ScriptedService):
        def handle(self, connection: Connection, frame: memoryview) -> Outcome:  # noqa: ARG002
            frame[:3] = b"new"
            return reply(bytes(frame))

    async def scenario() -> None:
        async with Ends(service=Patching(echo)) as ends:
            await ends.peer.send_frames(b"old value")
            assert await ends.peer.receive_frame() == b"new value"

    run(scenario())


@both_loops
def test_no_reply_sends_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with Ends(lambda frame: NO_REPLY if frame == b"quiet" else reply(frame)) as ends:
            await ends.peer.send_frames(b"quiet", b"loud", b"quiet")
            assert await ends.peer.receive_frame() == b"loud"
            await until(lambda: len(ends.service.frames) == 3)
            ends.connection.finish()
            assert await ends.peer.receive_rest() == b""

    run(scenario())


@both_loops
def test_parked_replies_keep_their_place(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with Ends(lambda frame: reply(frame) if frame.startswith(b"now") else parking(frame)) as ends:
            await ends.peer.send_frames(b"a", b"now 1", b"b", b"c", b"now 2")
            await until(lambda: len(ends.service.frames) == 5)
            parking.resolve(b"c")
            parking.resolve(b"b")
            await loop_turns()
            assert ends.connection.unsent_bytes == len(framed(b"now 1")) + len(framed(b"now 2"))
            parking.resolve(b"a")
            assert await ends.peer.receive_frames(5) == [b"a", b"now 1", b"b", b"c", b"now 2"]
            assert ends.connection.unsent_bytes == 0

    run(scenario())


@settings(deadline=None, max_examples=40)
@given(
    kinds=st.lists(st.sampled_from(["now", "parked", "done", "task", "task then parked", "none"]), max_size=25),
    seed=st.integers(0, 1000),
)
def test_any_mix_of_answers_replies_in_order(kinds: list[str], seed: int) -> None:
    chance = random.Random(seed)
    parked: list[tuple[asyncio.Future[Reply], bytes]] = []

    def park(frame: bytes) -> Parked:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        parked.append((future, frame))
        return Parked(future)

    async def in_a_task(frame: bytes, *, then_parked: bool) -> Reply | Parked:
        await asyncio.sleep(0)
        return park(frame) if then_parked else reply(frame)

    def answer(frame: bytes) -> Outcome:
        kind = kinds[int(frame)]
        if kind == "now":
            return reply(frame)
        if kind == "none":
            return NO_REPLY
        if kind == "parked":
            return park(frame)
        if kind == "done":
            future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            future.set_result(reply(frame))
            return Parked(future)
        return in_a_task(frame, then_parked=kind == "task then parked")

    async def resolve_in_any_order(count: int) -> None:
        resolved = 0
        while resolved < count:
            await asyncio.sleep(0)
            if parked:
                future, frame = parked.pop(chance.randrange(len(parked)))
                future.set_result(reply(frame))
                resolved += 1

    async def scenario() -> None:
        limits = ConnectionLimits(parked_max=3, frames_per_turn=4)
        async with Ends(answer, limits=limits) as ends:
            await ends.peer.send_frames(*(b"%d" % number for number in range(len(kinds))))
            waiting = sum(kind in ("parked", "task then parked") for kind in kinds)
            wanted = [b"%d" % number for number, kind in enumerate(kinds) if kind != "none"]
            received, _ = await asyncio.gather(ends.peer.receive_frames(len(wanted)), resolve_in_any_order(waiting))
            assert received == wanted
            assert ends.connection.unsent_bytes == 0

    asyncio.run(scenario())


@both_loops
def test_a_coroutine_keeps_its_frame_and_holds_up_the_next(run: Run) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        frames: list[memoryview] = []

        async def slowly(frame: memoryview) -> Reply:
            await gate.wait()
            return reply(bytes(frame))

        class Slow(ScriptedService):
            def handle(self, connection: Connection, frame: memoryview) -> Outcome:  # noqa: ARG002
                frames.append(frame)
                return slowly(frame) if bytes(frame).startswith(b"slow") else reply(bytes(frame))

        scratch = Scratch()
        async with (
            Ends(service=Slow(echo), scratch=scratch) as ends,
            Ends(scratch=scratch) as other,
        ):
            await ends.peer.send_frames(b"slow one", b"next")
            await until(lambda: len(frames) == 1)
            # Another connection, and more bytes on this one, must not touch the frame.
            await other.peer.send_frames(b"x" * 1000)
            assert await other.peer.receive_frame() == b"x" * 1000
            await ends.peer.send_frames(b"last")
            await loop_turns()
            assert len(frames) == 1
            assert not ends.connection.reading
            gate.set()
            assert await ends.peer.receive_frames(3) == [b"slow one", b"next", b"last"]
            await until(lambda: ends.connection.reading)
            assert not ends.host.tasks

    run(scenario())


@both_loops
def test_a_coroutine_may_park_its_reply(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()

        async def check_then_park(frame: bytes) -> Reply | Parked:
            outcome = parking(frame)
            assert isinstance(outcome, Parked)
            return outcome

        async with Ends(lambda frame: check_then_park(frame) if frame == b"a" else reply(frame)) as ends:
            await ends.peer.send_frames(b"a", b"b")
            await until(lambda: len(ends.service.frames) == 2)
            parking.resolve(b"a")
            assert await ends.peer.receive_frames(2) == [b"a", b"b"]

    run(scenario())


@both_loops
def test_regions_are_sent_between_the_bytes(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        large = os.urandom(3 << 20)
        small = b"small records"

        def answer(frame: bytes) -> Outcome:
            body = b"corr" + b"mid" + b"end"
            length = len(body) + len(large) + len(small)
            data = length.to_bytes(4, "big") + body
            regions = [(8, file_region(tmp_path, large)), (11, FileRegion(small, None, 0))]
            return reply(frame) if frame == b"plain" else Outgoing(data, regions)

        async with Ends(answer) as ends:
            await ends.peer.send_frames(b"plain", b"fetch", b"plain", b"fetch")
            fetched = b"corr" + large + b"mid" + small + b"end"
            assert await ends.peer.receive_frames(4) == [b"plain", fetched, b"plain", fetched]

    run(scenario())


# Back-pressure and fairness


@both_loops
def test_a_peer_that_does_not_read_is_not_read_either(run: Run) -> None:
    async def scenario() -> None:
        limits = ConnectionLimits(output_bytes_max=300_000)
        body = os.urandom(100_000)
        async with Ends(lambda frame: reply(frame + body), limits=limits, socket_buffer_bytes=8192) as ends:
            names = [b"%04d" % number for number in range(100)]
            await ends.peer.send_frames(*names)
            await until(lambda: not ends.connection.reading)
            await loop_turns()
            handled = len(ends.service.frames)
            assert handled < 10
            assert ends.connection.unsent_bytes <= limits.output_bytes_max + 2 * len(body)
            assert await ends.peer.receive_frames(100) == [name + body for name in names]
            assert ends.connection.unsent_bytes == 0
            await until(lambda: ends.connection.reading)

    run(scenario())


@both_loops
def test_outstanding_replies_are_bounded(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with Ends(parking, limits=ConnectionLimits(parked_max=4)) as ends:
            names = [b"%d" % number for number in range(10)]
            await ends.peer.send_frames(*names)
            await until(lambda: not ends.connection.reading)
            await loop_turns()
            assert ends.service.frames == names[:4]
            for name in names:
                await until(lambda name=name: name in parking.futures)  # type: ignore[misc]
                parking.resolve(name)
            assert await ends.peer.receive_frames(10) == names

    run(scenario())


@both_loops
def test_replies_behind_a_parked_one_are_bounded_too(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with Ends(
            lambda frame: parking(frame) if frame == b"0" else reply(frame), limits=ConnectionLimits(parked_max=4)
        ) as ends:
            names = [b"%d" % number for number in range(10)]
            await ends.peer.send_frames(*names)
            await until(lambda: not ends.connection.reading)
            await loop_turns()
            assert ends.service.frames == names[:4]
            parking.resolve(b"0")
            assert await ends.peer.receive_frames(10) == names

    run(scenario())


@both_loops
def test_finished_replies_behind_a_parked_one_count_as_output(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        limits = ConnectionLimits(output_bytes_max=1000)
        async with Ends(lambda frame: parking(frame) if frame == b"0" else reply(frame * 400), limits=limits) as ends:
            names = [b"%d" % number for number in range(10)]
            await ends.peer.send_frames(*names)
            await until(lambda: not ends.connection.reading)
            await loop_turns()
            assert len(ends.service.frames) == 4
            parking.resolve(b"0")
            assert await ends.peer.receive_frames(10) == [b"0", *(name * 400 for name in names[1:])]

    run(scenario())


@both_loops
def test_a_pipelining_connection_lets_others_in(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(echo)
        limits = ConnectionLimits(frames_per_turn=8)
        scratch = Scratch()
        async with (
            Ends(service=service, limits=limits, scratch=scratch) as busy,
            Ends(service=service, limits=limits, scratch=scratch) as modest,
        ):
            await busy.peer.send_frames(*[b"busy"] * 200)
            await modest.peer.send_frames(b"modest")
            assert await modest.peer.receive_frame() == b"modest"
            assert await busy.peer.receive_frames(200) == [b"busy"] * 200
            assert service.frames.index(b"modest") <= 16

    run(scenario())


@both_loops
def test_a_muted_connection_is_not_read_until_the_mute_ends(run: Run) -> None:
    class MutesItself(ScriptedService):
        def handle(self, connection: Connection, frame: memoryview) -> Outcome:
            if bytes(frame) == b"mute":
                connection.mute(1e6)
                connection.mute(0.0)  # a shorter one changes nothing
            return super().handle(connection, frame)

    async def scenario() -> None:
        async with Ends(service=MutesItself(echo)) as ends:
            await ends.peer.send_frames(b"mute", b"later")
            assert await ends.peer.receive_frame() == b"mute"
            await loop_turns()
            assert ends.service.frames == [b"mute"]
            assert not ends.connection.reading
            ends.connection._unmute()
            assert await ends.peer.receive_frame() == b"later"

    run(scenario())


@both_loops
def test_a_mute_ends_by_itself(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            ends.connection.mute(0.001)
            await ends.peer.send_frames(b"later")
            assert await ends.peer.receive_frame() == b"later"

    run(scenario())


# Closing


@both_loops
@pytest.mark.parametrize("raises", [False, True])
def test_close_lets_earlier_replies_out_first(run: Run, *, raises: bool) -> None:
    def refuse() -> NoReply:
        if raises:
            raise CloseConnection("not today")
        return CLOSE

    async def scenario() -> None:
        parking = Parking()

        def answer(frame: bytes) -> Outcome:
            return {b"park": lambda: parking(frame), b"close": refuse}.get(frame, lambda: reply(frame))()

        async with Ends(answer) as ends:
            await ends.peer.send_frames(b"park", b"one", b"close", b"never handled")
            await until(lambda: len(ends.service.frames) == 3)
            await loop_turns()
            assert not ends.connection.closed
            parking.resolve(b"park")
            assert await ends.peer.receive_rest() == framed(b"park") + framed(b"one")
            assert len(ends.service.frames) == 3
            ends.peer.close()
            await until(lambda: ends.connection.closed)

    run(scenario())


@both_loops
def test_nothing_is_sent_after_a_reply_that_failed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        parking = Parking()
        gate = asyncio.Event()

        async def slowly(frame: bytes) -> Reply:
            await gate.wait()
            return reply(frame)

        def answer(frame: bytes) -> Outcome:
            if frame.startswith(b"task"):
                return slowly(frame)
            return parking(frame) if frame.startswith(b"park") else reply(frame)

        async with Ends(answer) as ends:
            await ends.peer.send_frames(b"first", b"park 1", b"park 2", b"behind", b"task")
            await until(lambda: len(ends.service.frames) == 5)
            parking.futures[b"park 1"].set_exception(ValueError("broken handler"))
            assert await ends.peer.receive_rest() == framed(b"first")
            assert parking.futures[b"park 2"].cancelled()
            gate.set()
            await until(lambda: not ends.host.tasks)
            assert "broken handler" in caplog.text

    run(scenario())


@both_loops
def test_a_crash_closes_only_its_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def answer(frame: bytes) -> Outcome:
        if frame == b"crash":
            raise ZeroDivisionError("our bug")
        return reply(frame)

    async def scenario() -> None:
        scratch = Scratch()
        service = ScriptedService(answer)
        async with Ends(service=service, scratch=scratch) as ends, Ends(service=service, scratch=scratch) as other:
            await ends.peer.send_frames(b"fine", b"crash")
            assert await ends.peer.receive_rest() == framed(b"fine")
            await other.peer.send_frames(b"still here")
            assert await other.peer.receive_frame() == b"still here"

    run(scenario())
    assert "ZeroDivisionError: our bug" in caplog.text
    assert "192.0.2.7:1234" in caplog.text


@both_loops
def test_a_crash_in_a_coroutine_closes_its_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> Reply:
        raise ZeroDivisionError("our bug")

    async def scenario() -> None:
        async with Ends(lambda frame: reply(frame) if frame == b"fine" else crash()) as ends:
            await ends.peer.send_frames(b"fine", b"crash")
            assert await ends.peer.receive_rest() == framed(b"fine")

    run(scenario())
    assert "ZeroDivisionError: our bug" in caplog.text


@both_loops
def test_an_answer_that_is_none_of_the_kinds_is_a_crash(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Ends(lambda frame: frame) as ends:  # type: ignore[arg-type, return-value]
            await ends.peer.send_frames(b"what")
            assert await ends.peer.receive_rest() == b""

    run(scenario())
    assert "a service answered with bytes" in caplog.text


@both_loops
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff\xff\xff\xff", "negative frame length -1"),
        (b"\x00\x01\x00\x00", "a frame of 65536 bytes exceeds"),
        (bytes.fromhex("16030100f8010000f40303"), "speaks TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\n\r\n", "speaks HTTP"),
    ],
)
def test_what_is_no_frame_closes_with_a_reason(
    run: Run, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    async def scenario() -> None:
        async with Ends(limits=ConnectionLimits(frame_bytes_max=1000)) as ends:
            await ends.peer.send(sent)
            assert await ends.peer.receive_rest() == b""

    run(scenario())
    assert reason in caplog.text
    assert "192.0.2.7:1234 to PLAINTEXT" in caplog.text


@both_loops
def test_frames_before_a_malformed_one_are_answered(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            await ends.peer.send(framed(b"good") + b"\xff\xff\xff\xff")
            assert await ends.peer.receive_rest() == framed(b"good")

    run(scenario())


@both_loops
def test_a_peer_that_leaves_in_the_middle_of_a_frame(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            await ends.peer.send(framed(b"whole") + framed(b"torn")[:-1])
            assert await ends.peer.receive_frame() == b"whole"
            ends.peer.close()
            await until(lambda: ends.connection.closed)
            assert ends.service.frames == [b"whole"]
            assert ends.closings == [ends.connection]

    run(scenario())


@both_loops
def test_a_peer_that_leaves_cancels_what_is_parked(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with Ends(parking) as ends:
            await ends.peer.send_frames(b"a", b"b")
            await until(lambda: len(parking.futures) == 2)
            ends.peer.close()
            await until(lambda: ends.connection.closed)
            assert all(future.cancelled() for future in parking.futures.values())

    run(scenario())


@both_loops
def test_a_coroutine_finishes_what_it_began_when_the_connection_is_gone(run: Run) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        finished: list[bytes] = []

        async def slowly(frame: bytes) -> Reply:
            await gate.wait()
            finished.append(frame)
            return reply(frame)

        async with Ends(slowly) as ends:
            await ends.peer.send_frames(b"work")
            await until(lambda: len(ends.host.tasks) == 1)
            ends.connection.close()
            gate.set()
            await until(lambda: not ends.host.tasks)
            assert finished == [b"work"]
            assert await ends.peer.receive_rest() == b""

    run(scenario())


@both_loops
def test_a_service_may_close_the_connection_it_is_called_from(run: Run) -> None:
    parked: list[asyncio.Future[Reply]] = []

    class Closes(ScriptedService):
        def handle(self, connection: Connection, frame: memoryview) -> Outcome:
            connection.close("enough")
            if bytes(frame) == b"now":
                return reply(b"too late")
            parked.append(asyncio.get_running_loop().create_future())
            return Parked(parked[-1])

    async def scenario() -> None:
        for frame in (b"now", b"parked"):
            async with Ends(service=Closes(echo)) as ends:
                await ends.peer.send_frames(frame, b"second")
                assert await ends.peer.receive_rest() == b""
                assert ends.connection.closed
                ends.connection.close()
                assert len(ends.closings) == 1
        assert [future.cancelled() for future in parked] == [True]

    run(scenario())


@both_loops
def test_a_file_cut_short_closes_in_the_middle_of_the_reply(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    region = file_region(tmp_path, bytes(100_000))
    file = region.fileno()
    assert file is not None
    os.ftruncate(file, region.position + 50_000)

    async def scenario() -> None:
        async with Ends(lambda _: Outgoing(b"\x00\x01\x86\xa4head", [(8, region)])) as ends:
            await ends.peer.send_frames(b"fetch")
            assert len(await ends.peer.receive_rest()) < 100_000
            await until(lambda: ends.connection.closed)

    run(scenario())
    assert "closed in the middle of a reply" in caplog.text


@both_loops
def test_finishing_waits_for_replies_then_for_the_peer(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with Ends(parking, limits=ConnectionLimits(linger_s=1e6)) as ends:
            await ends.peer.send_frames(b"a")
            await until(lambda: len(parking.futures) == 1)
            ends.connection.finish()
            ends.connection.finish()
            # Requests that come too late are not handled, and must not reset the connection either.
            await ends.peer.send_frames(b"late")
            await loop_turns()
            parking.resolve(b"a")
            assert await ends.peer.receive_rest() == framed(b"a")
            assert not ends.connection.closed
            await ends.peer.send_frames(b"later still")
            await loop_turns()
            ends.peer.close()
            await until(lambda: ends.connection.closed)
            assert ends.service.frames == [b"a"]

    run(scenario())


@both_loops
def test_finishing_waits_for_a_coroutine(run: Run) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def slowly(frame: bytes) -> Reply:
            await gate.wait()
            return reply(frame)

        async with Ends(slowly) as ends:
            await ends.peer.send_frames(b"a", b"b")
            await until(lambda: len(ends.host.tasks) == 1)
            ends.connection.finish()
            await loop_turns()
            assert not ends.connection.closed
            gate.set()
            assert await ends.peer.receive_rest() == framed(b"a")

    run(scenario())


@both_loops
def test_a_finished_connection_does_not_wait_for_ever(run: Run) -> None:
    async def scenario() -> None:
        async with Ends(limits=ConnectionLimits(linger_s=0.001)) as ends:
            await ends.peer.send_frames(b"a")
            assert await ends.peer.receive_frame() == b"a"
            ends.connection.finish()
            await until(lambda: ends.connection.closed)

    run(scenario())


# Idling


def idle_limits() -> ConnectionLimits:
    return ConnectionLimits(idle_timeout_s=600.0)


@both_loops
def test_a_silent_connection_is_closed_after_the_idle_time(run: Run) -> None:
    async def scenario() -> None:
        clock = SetClock()
        async with Ends(limits=idle_limits(), clock=clock) as ends:
            clock.seconds += 599
            ends.connection.sweep(clock.monotonic())
            assert not ends.connection.closed
            await ends.peer.send_frames(b"hello")
            assert await ends.peer.receive_frame() == b"hello"
            ends.connection.sweep(clock.monotonic())
            clock.seconds += 599
            ends.connection.sweep(clock.monotonic())
            assert not ends.connection.closed
            clock.seconds += 1
            ends.connection.sweep(clock.monotonic())
            assert ends.closings == [ends.connection]
            assert await ends.peer.receive_rest() == b""

    run(scenario())


@both_loops
def test_who_waits_for_us_is_not_idle(run: Run) -> None:
    async def scenario() -> None:
        clock = SetClock()
        parking = Parking()
        async with Ends(parking, limits=idle_limits(), clock=clock) as ends:
            await ends.peer.send_frames(b"long poll")
            await until(lambda: len(parking.futures) == 1)
            for _ in range(3):
                clock.seconds += 601
                ends.connection.sweep(clock.monotonic())
            parking.resolve(b"long poll")
            assert await ends.peer.receive_frame() == b"long poll"

    run(scenario())


@both_loops
def test_a_peer_that_never_reads_is_closed_after_the_idle_time(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = SetClock()
        parking = Parking()

        def answer(frame: bytes) -> Outcome:
            return parking(frame) if frame == b"parked" else reply(frame * 50_000)

        async with Ends(answer, limits=idle_limits(), clock=clock, socket_buffer_bytes=8192) as ends:
            # That a later request waits for us does not excuse it.
            await ends.peer.send_frames(b"a", b"parked")
            await until(lambda: ends.connection.unsent_bytes > 0)
            await loop_turns()
            ends.connection.sweep(clock.monotonic())
            clock.seconds += 600
            ends.connection.sweep(clock.monotonic())
            assert ends.connection.closed

    run(scenario())
    assert "it took none of its replies for 600 s" in caplog.text


@both_loops
def test_a_quiet_connection_gives_up_its_memory(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            sending = asyncio.create_task(ends.peer.send_frames(b"x" * 1_000_000))
            await ends.peer.receive_frame()
            await sending
            held = ends.connection._inbound
            assert held.capacity >= 1_000_000
            for _ in range(3):
                ends.connection.sweep(ends.clock.monotonic())
            assert held.capacity == 0

    run(scenario())


@both_loops
def test_a_connection_says_who_it_is(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            assert ends.connection.peer == Address("192.0.2.7", 1234)
            assert ends.connection.listener_name == "PLAINTEXT"
            assert ends.connection.local == Address("local", 0)
            assert ends.connection.service_state is None
            assert repr(ends.connection) == "<Connection of 192.0.2.7:1234 to PLAINTEXT>"

    logging.getLogger("tidelog.net").setLevel(logging.DEBUG)
    run(scenario())
