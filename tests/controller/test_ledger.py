"""Writing in bulk: what belongs together stays together, and nothing is written by one that is deposed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cluster_double import UnsteadyStore
from hypothesis import given
from hypothesis import strategies as st

from tidelog.clock import SystemClock
from tidelog.controller.claim import Claim, claim
from tidelog.controller.image import PartitionImage, TopicImage
from tidelog.controller.ledger import (
    BYTES_PER_MULTI,
    OPERATIONS_PER_MULTI,
    Deposed,
    Ledger,
    _lots,
    _size,
    assignment_node,
)
from tidelog.controller.transitions import PartitionChange
from tidelog.types import TopicId, TopicPartition
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import EmbeddedHome
from tidelog.znodes.errors import MultiError, NodeExists
from tidelog.znodes.store import Create, Operation, SetData

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


@given(st.lists(st.lists(st.integers(0, 200_000), min_size=1, max_size=150), max_size=30))
def test_lots_are_bounded_and_keep_units_whole_and_in_order(sizes: list[list[int]]) -> None:
    units: list[Sequence[Operation]] = [
        [Create(f"/{at}-{number}", bytes(size)) for number, size in enumerate(unit)] for at, unit in enumerate(sizes)
    ]
    lots = list(_lots(units))
    assert [operation for lot in lots for operation in lot] == [operation for unit in units for operation in unit]
    for unit in units:
        assert sum(unit[0] in lot and unit[-1] in lot for lot in lots) == 1
    for lot in lots:
        unit_in_lot = len({operation.path.split("-")[0] for operation in lot})
        assert unit_in_lot == 1 or len(lot) <= OPERATIONS_PER_MULTI
        assert unit_in_lot == 1 or sum(map(_size, lot)) <= BYTES_PER_MULTI


def with_ledger(story: Callable[[UnsteadyStore, Ledger, Claim], Awaitable[None]]) -> None:
    async def main() -> None:
        home = await EmbeddedHome.open(None, SystemClock())
        store = UnsteadyStore(home, await home.begin_session())
        won = await claim(store, 1, 0)
        assert won is not None
        store.multis.clear()
        await story(store, Ledger(store, won, in_flight_max=3), won)
        await home.close()

    asyncio.run(main())


def test_many_operations_take_few_transactions() -> None:
    async def story(store: UnsteadyStore, ledger: Ledger, won: Claim) -> None:
        await ledger.write([Create(f"/{number}")] for number in range(2000))
        assert len(await store.children("/")) == 2000 + 2
        assert len(store.multis) == 7
        assert all(operations[0] == won.fence for operations in store.multis)

    with_ledger(story)


def test_one_that_is_deposed_writes_nothing_and_learns_it() -> None:
    async def story(store: UnsteadyStore, ledger: Ledger, _won: Claim) -> None:
        await ledger.confirm()
        await store.set(paths.CONTROLLER_EPOCH, b"9")
        with pytest.raises(Deposed):
            await ledger.write([[Create("/a")]])
        with pytest.raises(Deposed):
            await ledger.confirm()
        assert await store.exists("/a") is None

    with_ledger(story)


def test_other_failures_are_told_as_they_are() -> None:
    async def story(store: UnsteadyStore, ledger: Ledger, _won: Claim) -> None:
        await store.create("/a")
        with pytest.raises(MultiError) as failed:
            await ledger.write([[Create("/b"), Create("/a")], [Create("/c")]])
        assert isinstance(failed.value.cause, NodeExists)
        assert await store.exists("/b") is None

    with_ledger(story)


def test_a_partition_that_moves_is_written_together_with_its_topics_replicas() -> None:
    async def story(_store: UnsteadyStore, ledger: Ledger, won: Claim) -> None:
        before = PartitionImage((1, 2), (1,), 1, 4, 7)
        topic = TopicImage("t", TopicId(b"t" * 16), [before, before, before])
        after = replace(before, replicas=(3, 1, 2), adding=(3,), leader_epoch=5, partition_epoch=8)
        shrunk = replace(before, leader=2, isr=(2,), leader_epoch=5, partition_epoch=8)
        watched = replace(before, observers=(2,))
        units = ledger.changes(
            [
                PartitionChange(TopicPartition("t", 0), before, shrunk),
                PartitionChange(TopicPartition("t", 1), before, after),
                PartitionChange(TopicPartition("t", 2), before, watched),
            ],
            {"t": topic},
        )
        state, move = units
        assert [(type(each), each.path) for each in state] == [(SetData, paths.partition_state("t", 0))]
        assert [each.path for each in move] == [paths.topic("t"), paths.partition_state("t", 1)]
        node, moved = move
        assert isinstance(node, SetData)
        assert isinstance(moved, SetData)
        assert moved.version == 7
        assert nodes.TopicAssignment.decode("t", node.data) == nodes.TopicAssignment(
            topic.topic_id, {0: (1, 2), 1: (3, 1, 2), 2: (1, 2)}, {1: (3,)}, {}
        )
        assert nodes.PartitionState.decode("p", moved.data).controller_epoch == won.epoch
        assert node.data == assignment_node(topic, [before, after, before])

    with_ledger(story)
