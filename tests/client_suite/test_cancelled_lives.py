"""Clients are cancelled at each place where they wait, in turn, once and again: no task and no socket is left."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tidelog.client import Admin, ConfigResource, Consumer, OffsetSpec, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from tidelog.testing import BrokerProcess

WAITS_MAX: Final = 400
QUICK: Final[dict[str, Any]] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
READING: Final[dict[str, Any]] = {**QUICK, "fetch_max_wait_ms": 20}


class CancelledWhereItWaits:
    """Runs work, and cancels the task in which it runs when it waits for the n-th time, and once more later."""

    def __init__(self, work: Coroutine[Any, Any, None], wait: int, again: int | None) -> None:
        self._work = work
        self._waits = {wait} if again is None else {wait, wait + again}
        self.reached = False

    def __await__(self) -> Generator[Any, None, None]:
        inner = self._work.__await__()
        task = asyncio.current_task()
        assert task is not None
        result = None
        for number in count(1):
            try:
                awaited = inner.send(result) if not isinstance(result, BaseException) else inner.throw(result)
            except StopIteration:
                return
            if number in self._waits:
                self.reached = True
                task.cancel()
            try:
                result = yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on to whoever waits
                result = error


async def admin_life(bootstrap: str, topic: str, number: str) -> None:
    async with Admin(bootstrap) as admin:
        with contextlib.suppress(Exception):
            await admin.create_topic(f"{topic}-{number}")
        await admin.describe_topic(topic)
        await admin.describe_configs(ConfigResource.of_topic(topic), ["retention.ms"])
        await admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
        await admin.describe_log_dirs()


async def reading_life(bootstrap: str, topic: str, _number: str) -> None:
    async with Consumer(bootstrap, **READING) as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        await consumer.poll(30)
        await consumer.seek_to_beginning()
        await anext(consumer)
        await consumer.seek_to_beginning()
        await consumer.poll_batch(30)
        await consumer.end_offsets(consumer.assignment)


async def group_life(bootstrap: str, topic: str, number: str) -> None:
    async with Consumer(
        bootstrap, group_id=f"{topic}-{number}", topics=[topic], auto_offset_reset="earliest", **READING
    ) as consumer:
        await anext(consumer)
        await consumer.commit()
        await consumer.committed()
        await consumer.commit_soon()
        await consumer.unsubscribe()


async def producing_life(bootstrap: str, topic: str, _number: str) -> None:
    async with Producer(bootstrap, linger_ms=0, **QUICK) as producer:
        await producer.send(topic, b"one")
        await producer.send_and_wait(topic, b"two")
        await (await producer.send_batch(topic, pa.table({"value": ["three"] * 10})))
        await producer.flush()


async def exactly_once_life(bootstrap: str, topic: str, number: str) -> None:
    name = f"{topic}-{number}"
    async with (
        Consumer(
            bootstrap, group_id=name, topics=[topic], auto_offset_reset="earliest", enable_auto_commit=False, **READING
        ) as consumer,
        Producer(bootstrap, transactional_id=name, linger_ms=0, **QUICK) as producer,
    ):
        for record in await consumer.poll(30, max_records=2):
            async with producer.transaction():
                await producer.send(topic, record.value)
                await producer.send_offsets(consumer.positions(), consumer.group_metadata())


LIVES = [admin_life, reading_life, group_life, producing_life, exactly_once_life]


def open_sockets() -> set[str]:
    """By inode, as the system knows them."""
    found: set[str] = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(path.readlink())
            if target.startswith("socket:"):
                found.add(target)
    return found


async def cancelled_at(work: Coroutine[Any, Any, None], wait: int, again: int | None) -> bool:
    """Whether it came that far."""
    at = CancelledWhereItWaits(work, wait, again)

    async def run() -> None:
        await at

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    if not at.reached:
        task.result()
    elif not task.cancelled() and task.exception() is not None:
        raise AssertionError(f"cancelled at wait {wait}, it ended with an error") from task.exception()
    return at.reached


@pytest.mark.parametrize("again", [None, 1, 2], ids=["once", "twice", "twice-later"])
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_nothing_is_left_wherever_it_was_cancelled(
    broker: BrokerProcess, topic: str, life: Callable[[str, str, str], Coroutine[Any, Any, None]], again: int | None
) -> None:
    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(topic, partitions=1)
        async with Producer(broker.bootstrap) as producer:
            for number in range(10):
                await producer.send(topic, b"%d" % number)
        tasks, sockets = asyncio.all_tasks(), open_sockets()
        waits = 0
        while await cancelled_at(life(broker.bootstrap, topic, f"{again}-{waits}"), waits + 1, again):
            waits += 1
            assert waits < WAITS_MAX, "it never ends by itself"
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - tasks
            assert not left, f"cancelled at wait {waits}, it left {left}"
            assert open_sockets() <= sockets, f"cancelled at wait {waits}, it left sockets"
        assert waits > 5, "it hardly waited"

    asyncio.run(scenario())
