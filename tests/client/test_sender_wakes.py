"""A batch whose time comes while the sender is busy is not forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.client import Producer

if TYPE_CHECKING:
    import pytest


def test_what_becomes_ready_during_a_step_is_sent_after_it(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with Producer(bootstrap, linger_ms=30, delivery_timeout_ms=600_000) as producer:
            await producer.send_and_wait(topic, b"the topic is there, and a producer id")
            step = producer._sender._step
            clock = asyncio.get_running_loop().time

            async def long_step(now_s: float) -> None:
                await step(now_s)
                next_s = producer._accumulator.next_ready_s(now_s)
                while next_s is not None and clock() <= next_s:
                    pass

            monkeypatch.setattr(producer._sender, "_step", long_step)
            async with asyncio.timeout(60):  # for hanging, not for slowness
                await producer.send_and_wait(topic, b"lingers")

    asyncio.run(scenario())
