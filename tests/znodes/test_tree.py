"""The pure tree: drafts change nothing until published, and ownership follows the nodes."""

from __future__ import annotations

import pytest

from tidelog.znodes.errors import MultiError
from tidelog.znodes.store import Check, Create, Delete, EventType, SetData, WatchEvent
from tidelog.znodes.tree import Draft, Tree

NOW_MS = 1000
SESSION, OTHER = 7, 8


def test_a_draft_is_not_seen_until_it_is_published() -> None:
    tree = Tree()
    draft = Draft(tree, zxid=5)
    outcome = draft.run([Create("/a", b"x")], SESSION, NOW_MS)
    assert outcome.results == ["/a"]
    assert outcome.events == [WatchEvent(EventType.CREATED, "/a")]
    assert tree.get("/a") is None
    tree.publish(draft.changes)
    node = tree.get("/a")
    assert node is not None
    assert node.stat[:5] == (6, 6, 6, NOW_MS, NOW_MS)
    assert tree.children("/") == ["a"]


def test_transactions_of_a_draft_build_on_each_other() -> None:
    draft = Draft(Tree(), zxid=0)
    draft.run([Create("/a")], SESSION, NOW_MS)
    draft.run([Create("/a/b")], SESSION, NOW_MS)
    with pytest.raises(MultiError):
        draft.run([SetData("/a", b"lost"), Delete("/a")], SESSION, NOW_MS)
    draft.run([Check("/a", 0)], SESSION, NOW_MS)
    assert draft.zxid == 2
    assert draft.begin_session() == draft.zxid == 3
    node = draft.changes["/a"]
    assert node is not None
    assert (node.data, node.num_children) == (b"", 1)


def test_created_and_deleted_in_one_draft() -> None:
    tree = Tree()
    draft = Draft(tree, zxid=0)
    outcome = draft.run([Create("/a", ephemeral=True), Delete("/a")], SESSION, NOW_MS)
    assert [event.type for event in outcome.events] == [EventType.CREATED, EventType.DELETED]
    tree.publish(draft.changes)
    assert tree.get("/a") is None
    assert tree.children("/") == []
    assert tree.owned_by(SESSION) == []
    root = tree.get("/")
    assert root is not None
    assert (root.stat.cversion, root.num_children) == (2, 0)


def test_ownership_follows_a_node_that_is_made_anew() -> None:
    tree = Tree()
    for owner in (SESSION, OTHER):
        draft = Draft(tree, zxid=0)
        operations = [Create("/a", ephemeral=True)]
        draft.run(operations if owner == SESSION else [Delete("/a"), *operations], owner, NOW_MS)
        tree.publish(draft.changes)
    assert tree.owned_by(SESSION) == []
    assert tree.owned_by(OTHER) == ["/a"]
    draft = Draft(tree, zxid=0)
    draft.run([Delete("/a"), Create("/a")], SESSION, NOW_MS)
    tree.publish(draft.changes)
    assert tree.owned_by(OTHER) == []
    assert tree.children("/") == ["a"]


def test_data_given_as_a_view_is_copied() -> None:
    buffer = bytearray(b"abc")
    draft = Draft(Tree(), zxid=0)
    draft.run([Create("/a", memoryview(buffer))], SESSION, NOW_MS)  # type: ignore[arg-type]
    buffer[:] = b"xyz"
    node = draft.changes["/a"]
    assert node is not None
    assert node.data == b"abc"
