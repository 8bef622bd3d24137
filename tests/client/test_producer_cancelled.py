"""A producer's life is cancelled after each of its steps in turn: no task and no connection is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import ScriptedBroker

from tidelog.client.producer import Producer
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STEPS_MAX = 2000
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "linger_ms": 0}


async def plain_life(bootstrap: str) -> None:
    async with Producer(bootstrap, **QUICK) as producer:
        for number in range(3):
            await producer.send("t", b"%d" % number)
        await producer.flush()
        await producer.send_and_wait("t", b"last")


async def transactional_life(bootstrap: str) -> None:
    async with Producer(bootstrap, transactional_id="x", **QUICK) as producer:
        async with producer.transaction():
            await producer.send("t", b"committed")
        await producer.begin()
        await producer.send("t", b"aborted")
        await producer.abort()
        await producer.begin()
        handle = await producer.transaction_handle([TopicPartition("t", 0)])
        async with Producer.join_transaction(bootstrap, handle, **QUICK) as writer:
            await writer.send("t", b"part", partition=0)
            producer.include(await writer.leave())
        await producer.prepare()
        await producer.commit()


async def cancel_after(steps: int, work: Coroutine[Any, Any, None]) -> bool:
    """Cancels it when the loop has gone round so many times; true if it had ended by itself."""
    task = asyncio.create_task(work)
    for _ in range(steps):
        if task.done():
            break
        await asyncio.sleep(0)
    ended = task.done()
    task.cancel()
    await asyncio.wait([task])
    if ended:
        task.result()
    else:
        # Whoever had nothing left to wait for ends as usual.
        assert task.cancelled() or task.exception() is None
    return ended


@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.parametrize("life", [plain_life, transactional_life])
def test_cancelling_at_any_step_leaves_nothing(
    life: Callable[[str], Coroutine[Any, Any, None]], *, newer: bool
) -> None:
    async def once(steps: int) -> bool:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.features = {"transaction.version": 2} if newer else {}
            ended = await cancel_after(steps, life(broker.bootstrap))
            left = [task for task in asyncio.all_tasks() if "src/tidelog" in repr(task)]
            assert not left, f"after {steps} steps"
            if broker.connections:
                await broker.all_gone()
        return ended

    steps = 0
    while not asyncio.run(once(steps)):
        steps += 1
        assert steps < STEPS_MAX, "it never ends"
