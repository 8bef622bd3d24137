"""Which watches a change concerns."""

from __future__ import annotations

import pytest

from tidelog.znodes.store import EventType, WatchEvent
from tidelog.znodes.watches import WatchTable

CREATED, DELETED, DATA, CHILDREN = EventType


def node_watch(_event: WatchEvent) -> None: ...


def child_watch(_event: WatchEvent) -> None: ...


def parent_watch(_event: WatchEvent) -> None: ...


def elsewhere(_event: WatchEvent) -> None: ...


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (CREATED, [(node_watch, WatchEvent(CREATED, "/p/a")), (parent_watch, WatchEvent(CHILDREN, "/p"))]),
        (DATA, [(node_watch, WatchEvent(DATA, "/p/a"))]),
        (
            DELETED,
            [
                (node_watch, WatchEvent(DELETED, "/p/a")),
                (child_watch, WatchEvent(DELETED, "/p/a")),
                (parent_watch, WatchEvent(CHILDREN, "/p")),
            ],
        ),
    ],
)
def test_who_is_told_what_and_only_once(happened: EventType, told: list[object]) -> None:
    table = WatchTable()
    table.watch_node("/p/a", node_watch)
    table.watch_children("/p/a", child_watch)
    table.watch_children("/p", parent_watch)
    table.watch_node("/p", elsewhere)
    table.watch_node("/p/ab", elsewhere)
    event = WatchEvent(happened, "/p/a")
    assert list(table.take(event)) == told
    assert list(table.take(event)) == []


def test_one_callback_for_node_and_children_hears_of_the_deletion_once() -> None:
    table = WatchTable()
    table.watch_node("/a", node_watch)
    table.watch_children("/a", node_watch)
    assert list(table.take(WatchEvent(DELETED, "/a"))) == [(node_watch, WatchEvent(DELETED, "/a"))]


def test_children_of_the_root() -> None:
    table = WatchTable()
    table.watch_children("/", parent_watch)
    assert list(table.take(WatchEvent(CREATED, "/a"))) == [(parent_watch, WatchEvent(CHILDREN, "/"))]


def test_cleared_watches_are_told_nothing() -> None:
    table = WatchTable()
    table.watch_node("/a", node_watch)
    table.watch_children("/", parent_watch)
    table.clear()
    assert list(table.take(WatchEvent(DELETED, "/a"))) == []
