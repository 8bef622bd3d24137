"""The crossing between kazoo's thread and the event loop, and the parts kazoo is given to stand on."""

from __future__ import annotations

import asyncio
import socket
import threading

from tidelog.znodes.kazoo_link import Inbox, _InOrderHandler, _Wakeups

FOREVER = 100_000.0


def handler() -> _InOrderHandler:
    return _InOrderHandler(answer_within_s=0.01, thread_ended=lambda: None)


def test_calls_cross_to_the_loop_in_their_order() -> None:
    async def scenario() -> None:
        seen: list[int] = []
        inbox, done = Inbox(asyncio.get_running_loop()), asyncio.Event()

        def put_many() -> None:
            for number in range(10_000):
                inbox.put(seen.append, number)
            inbox.put(done.set)

        worker = threading.Thread(target=put_many)
        worker.start()
        await done.wait()
        worker.join()
        assert seen == list(range(10_000))

    asyncio.run(scenario())


def test_what_comes_after_the_loop_is_closed_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Inbox(loop).put(lambda: None)


def test_any_number_of_wakeups_can_wait() -> None:
    wakeups = _Wakeups()
    for _ in range(100_000):
        assert wakeups.send(b"\0") == 1
    assert handler().select([wakeups], [], [], FOREVER) == ([wakeups], [], [])
    for _ in range(100_000):
        wakeups.recv(1)
    assert handler().select([wakeups], [], [], 0) == ([], [], [])
    wakeups.close()
    wakeups.close()


def test_select_tells_what_can_be_read_and_written() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert handler().select([], [one], [], FOREVER) == ([], [one], [])
        assert handler().select([one, other], [], [], 0) == ([], [], [])
        one.send(b"x")
        assert handler().select([one, other], [], [], FOREVER) == ([other], [], [])
        other.recv(1)
        one.close()
        assert handler().select([other], [], [], FOREVER) == ([other], [], [])


def test_a_server_that_says_nothing_is_not_waited_for_forever() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert handler().select([one], [], [], FOREVER) == ([], [], [])
