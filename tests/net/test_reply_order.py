from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from net_ends import reply

from tidelog.net.outgoing import Outgoing, Reply
from tidelog.net.reply_order import ReplyOrder


def ignore(_: asyncio.Future[Reply]) -> None:
    pass


@given(order=st.permutations(range(6)), finished=st.sets(st.integers(0, 5)))
def test_entries_leave_in_the_order_they_came(order: list[int], finished: set[int]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        waiting = ReplyOrder()
        futures: dict[int, asyncio.Future[Reply]] = {}
        for number in range(6):
            if number in finished:
                waiting.add(reply(b"%d" % number))
            else:
                futures[number] = loop.create_future()
                waiting.add(futures[number])
        left: list[bytes] = []
        for number in [-1, *order]:
            if number in futures:
                futures[number].set_result(reply(b"%d" % number))
            while (entry := waiting.pop_ready()) is not None:
                outgoing = entry if isinstance(entry, Outgoing) else entry.result()
                assert isinstance(outgoing, Outgoing)
                left.append(bytes(outgoing.data[4:]))
        assert left == [b"%d" % number for number in range(6)]
        assert waiting.finished_bytes == 0

    asyncio.run(scenario())


def test_finished_bytes_count_only_finished_replies() -> None:
    async def scenario() -> None:
        waiting = ReplyOrder()
        waiting.add(asyncio.get_running_loop().create_future())
        assert waiting.finished_bytes == 0
        waiting.add(reply(b"12345"))
        assert waiting.finished_bytes == 9
        waiting.abandon(ignore)
        assert waiting.finished_bytes == 0

    asyncio.run(scenario())


def test_abandoned_futures_are_cancelled_and_failed_ones_are_seen() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        unheard: list[object] = []
        loop.set_exception_handler(lambda _, context: unheard.append(context))
        waiting = ReplyOrder()
        outstanding: asyncio.Future[Reply] = loop.create_future()
        waiting.add(outstanding)
        failed: asyncio.Future[Reply] = loop.create_future()
        failed.set_exception(ValueError("nobody waits for this"))
        waiting.add(failed)
        waiting.abandon(ignore)
        assert outstanding.cancelled()
        assert not waiting.entries
        del failed
        assert unheard == []

    asyncio.run(scenario())
