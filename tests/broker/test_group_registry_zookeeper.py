"""The registry of groups in a real ZooKeeper, as other clients of it see it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from registry_stage import Cluster, owners
from zookeeper_cases import connect, end_session_elsewhere, with_kazoo

from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidelog.znodes.store import ZnodeStore


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    with ZooKeeperServers(tmp_path_factory.mktemp("zookeeper")) as servers:
        yield servers


def on_zookeeper(connect_string: str, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        sessions: list[ZnodeStore] = []

        async def open_session() -> ZnodeStore:
            sessions.append(await connect(connect_string))
            return sessions[-1]

        cluster = Cluster(open_session)
        try:
            await cluster.open()
            await story(cluster)
        finally:
            await cluster.close()
            for session in sessions:
                await session.close()

    asyncio.run(main())


def test_another_client_of_zookeeper_reads_groups_and_is_told_of_changes(zookeeper: ZooKeeperServers) -> None:
    root = f"{zookeeper.connect_string}/read"

    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        member_id = await broker.join_classic("g", {"t": [0, 1]})
        await broker.beat("new", "a")
        await broker.commit("simple", 1, 42)
        await cluster.until(lambda tree: len(owners(tree, "g")) == len(owners(tree, "new")) == 2)
        await cluster.until_offset("simple", 1, 42)
        told: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        watching = asyncio.Event()
        finished = asyncio.Event()

        def work(client: Any) -> None:
            def tell(event: Any) -> None:
                loop.call_soon_threadsafe(told.put_nowait, event.path)

            data, stat = client.get("/consumers/g/owners/t/0", watch=tell)
            assert data.decode() == member_id
            assert stat.ephemeralOwner == broker.znodes.session_id
            assert client.get_children("/consumers/g/ids") == [member_id]
            registration = json.loads(client.get(f"/consumers/g/ids/{member_id}")[0])
            assert registration["subscription"] == {"t": 1}
            assert client.get("/consumers/new/owners/t/1")[0] == b"a"
            assert client.get("/consumers/simple/offsets/t/1", watch=tell)[0] == b"42"
            loop.call_soon_threadsafe(watching.set)
            asyncio.run_coroutine_threadsafe(finished.wait(), loop).result()

        reading = asyncio.create_task(asyncio.to_thread(with_kazoo, root, work))
        waiting = asyncio.create_task(watching.wait())
        await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if reading.done():
            reading.result()  # it failed: say how
        await broker.commit("simple", 1, 43)
        await broker.leave_classic("g", member_id)
        events = {await asyncio.wait_for(told.get(), 60) for _ in range(2)}
        assert events == {"/consumers/g/owners/t/0", "/consumers/simple/offsets/t/1"}
        finished.set()
        await reading

    on_zookeeper(root, story)


def test_after_a_lost_session_everything_is_made_anew(zookeeper: ZooKeeperServers) -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.beat("g", "a")
        await broker.commit("h", 0, 1)
        await cluster.until(lambda tree: len(owners(tree, "g")) == 2)
        before = broker.znodes.session_id
        await end_session_elsewhere(broker.znodes)
        await cluster.until(
            lambda tree: (
                {owner for _data, owner in owners(tree, "g").values()} == {broker.znodes.session_id}
                and tree.get("/g/ids/a", (b"", 0))[1] == broker.znodes.session_id != before
            )
        )
        await broker.commit("h", 0, 2)
        await cluster.until_offset("h", 0, 2)

    on_zookeeper(f"{zookeeper.connect_string}/lost", story)


def test_coordinators_that_change_often_leave_one_picture(zookeeper: ZooKeeperServers) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2, leads=False)
        await one.beat("g", "a")
        for number in range(30):
            await one.commit(f"group-{number}", 0, number)
        leader, other = one, two
        for turn in range(6):
            leader, other = other, leader
            await cluster.elect(leader)
            other.coordinator.resign(0)
            await leader.commit("group-0", 0, 1000 + turn)
        await cluster.until_offset("group-0", 0, 1005)
        await cluster.until(
            lambda tree: {owner for _data, owner in owners(tree, "g").values()} == {leader.znodes.session_id}
        )
        await cluster.until(lambda tree: all(f"/group-{number}/offsets/t/0" in tree for number in range(30)))
        await other.znodes.close()
        tree = await cluster.look()
        assert len(owners(tree, "g")) == 2
        assert tree["/g/ids/a"][1] == leader.znodes.session_id

    on_zookeeper(f"{zookeeper.connect_string}/often", story)
