"""A wait that is over holds nobody: every acknowledged request would leave its garbage to the collector otherwise."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tidelog.replication.waiting import FetchWait, ProduceWait, nobody
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS = TopicPartition("orders", 0)


def produce_wait() -> tuple[ProduceWait, Callable[[], object]]:
    """A wait whose owner holds it, and a way to see whether the owner is still there."""
    wait = ProduceWait(nobody)

    def owner() -> None:
        assert not wait.outstanding

    wait.on_done = owner
    wait.outstanding.add(ORDERS)
    return wait, weakref.ref(owner)


def fetch_wait() -> tuple[FetchWait, Callable[[], object]]:
    wait = FetchWait(1, nobody)

    def owner() -> None:
        assert not wait.partitions

    wait.on_done = owner
    return wait, weakref.ref(owner)


def test_a_produce_wait_lets_go_of_its_owner_when_it_is_reached() -> None:
    wait, owner = produce_wait()
    assert owner() is not None
    wait.reached(ORDERS)
    assert owner() is None


def test_a_fetch_wait_lets_go_of_its_owner_when_enough_has_come() -> None:
    wait, owner = fetch_wait()
    assert owner() is not None
    wait.more(1)
    assert owner() is None


def test_a_fetch_wait_lets_go_of_its_owner_when_it_is_given_up() -> None:
    wait, owner = fetch_wait()
    wait.give_up()
    assert owner() is None


def test_an_owner_is_called_once() -> None:
    calls: list[str] = []
    wait = FetchWait(1, lambda: calls.append("fetch"))
    wait.wake()
    wait.wake()
    again = ProduceWait(lambda: calls.append("produce"))
    again.outstanding.add(ORDERS)
    again.reached(ORDERS)
    again.reached(ORDERS)
    assert calls == ["fetch", "produce"]
