"""Virtual time: order, freezing, killing, and that nothing of the real world leaks in."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from tidelog.testing.sim.timeline import SimulationStuck
from tidelog.testing.sim.world import World


def test_sleeping_takes_no_real_time() -> None:
    with World(1) as world:
        loop = world.new_loop("a")

        async def wait() -> float:
            await asyncio.sleep(1e6)
            return asyncio.get_running_loop().time()

        assert world.run(wait(), loop, within_s=2e6) == 1e6


def test_timers_run_in_order_and_ties_in_the_order_they_were_set() -> None:
    seen: list[str] = []
    with World(1) as world:
        loop, other = world.new_loop("a"), world.new_loop("b")
        loop.call_later(2, seen.append, "late")
        other.call_later(1, seen.append, "first")
        loop.call_later(1, seen.append, "second")
        loop.call_later(1.5, seen.append, "cancelled").cancel()
        world.timeline.run_until(3)
    assert seen == ["first", "second", "late"]
    assert world.timeline.now == 3


def test_timeouts_work() -> None:
    with World(1) as world:

        async def wait() -> float:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.get_running_loop().create_future()
            return asyncio.get_running_loop().time()

        assert world.run(wait(), world.new_loop("a"), within_s=10) == 5


def test_a_frozen_machine_does_what_was_due_when_it_thaws() -> None:
    seen: list[tuple[str, float]] = []
    with World(1) as world:
        loop, other = world.new_loop("a"), world.new_loop("b")

        def note(name: str) -> None:
            seen.append((name, world.timeline.now))

        loop.call_later(1, note, "frozen")
        other.call_later(2, note, "free")
        loop.freeze()
        world.timeline.run_until(3)
        loop.thaw()
        world.timeline.run_until(4)
    assert seen == [("free", 2.0), ("frozen", 3.0)]


def test_a_killed_machine_does_nothing_any_more_not_even_clean_up() -> None:
    seen: list[str] = []
    with World(1) as world:
        loop = world.new_loop("a")

        async def work() -> None:
            try:
                await asyncio.sleep(1)
                seen.append("worked")
            finally:
                seen.append("cleaned up")

        loop.create_task(work())
        world.timeline.run_until(0.5)
        loop.kill()
        world.timeline.run_until(5)
        assert not seen


def test_blocking_work_takes_some_time_and_gives_its_result() -> None:
    with World(3) as world:

        async def work() -> tuple[int, float]:
            loop = asyncio.get_running_loop()
            with pytest.raises(ZeroDivisionError):
                await loop.run_in_executor(None, lambda: 1 // 0)
            return await loop.run_in_executor(None, max, 3, 4), loop.time()

        result, now = world.run(work(), world.new_loop("a"), within_s=1)
    assert result == 4
    assert now > 0


def test_what_nobody_catches_is_kept() -> None:
    with World(1) as world:
        world.new_loop("a").call_soon(lambda: 1 // 0)
        world.timeline.run_until(1)
        assert "ZeroDivisionError" in world.failures[0]


def test_a_program_that_lets_no_time_pass_is_stuck() -> None:
    with World(1) as world:

        async def spin() -> None:
            while True:  # noqa: ASYNC110 - that is the mistake to be noticed
                await asyncio.sleep(0)

        with pytest.raises(SimulationStuck, match="time stands still"):
            world.run(spin(), world.new_loop("a"), within_s=1)


def test_a_wait_for_nothing_is_stuck() -> None:
    with World(1) as world:

        async def wait() -> None:
            await asyncio.get_running_loop().create_future()

        with pytest.raises(SimulationStuck, match="not done"):
            world.run(wait(), world.new_loop("a"), within_s=1)


def test_secrets_come_from_the_seed_while_a_world_is_open() -> None:
    def draw(seed: int) -> bytes:
        with World(seed):
            return secrets.token_bytes(8)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert secrets.token_bytes(8) != secrets.token_bytes(8)
