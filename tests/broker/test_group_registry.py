"""Groups mirrored below /consumers: what a client of the store sees while coordinators work, move and fail."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from registry_stage import CLOCK, Cluster, owners, until_true

from tidelog.broker.group_claims import GroupClaims
from tidelog.coordinators.placement import partition_for
from tidelog.znodes.embedded import EmbeddedHome, EmbeddedSession
from tidelog.znodes.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import pytest

    from tidelog.znodes.store import Operation, OperationResult, WatchEvent


def with_cluster(story: Callable[[Cluster], Awaitable[None]], partitions: int = 1) -> None:
    async def main() -> None:
        home = await EmbeddedHome.open(None, CLOCK)
        cluster = Cluster(home.begin_session, partitions)
        await cluster.open()
        try:
            await story(cluster)
        finally:
            await cluster.close()
            await home.close()

    asyncio.run(main())


# --- groups that live ---


def test_commits_are_shown() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.commit("g", 0, 5)
        await cluster.until_offset("g", 0, 5)
        for offset in range(6, 60):
            await broker.commit("g", 0, offset)
        await broker.commit("g", 1, 3)
        await cluster.until_offset("g", 0, 59)
        await cluster.until_offset("g", 1, 3)
        tree = await cluster.look()
        assert set(tree) == {
            "", "/g", "/g/ids", "/g/owners", "/g/offsets", "/g/offsets/t", "/g/offsets/t/0", "/g/offsets/t/1",
        }  # fmt: skip
        assert {owner for _data, owner in tree.values()} == {0}

    with_cluster(story)


def test_members_of_a_classic_group_come_and_go() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        member_id = await broker.join_classic("g", {"t": [0, 1]})
        ours = broker.znodes.session_id
        await cluster.until(lambda tree: len(owners(tree, "g")) == 2)
        tree = await cluster.look()
        assert owners(tree, "g") == {"0": (member_id.encode(), ours), "1": (member_id.encode(), ours)}
        data, owner = tree[f"/g/ids/{member_id}"]
        assert owner == ours
        assert json.loads(data)["subscription"] == {"t": 1}
        await broker.leave_classic("g", member_id)
        await cluster.until(lambda tree: not owners(tree, "g") and f"/g/ids/{member_id}" not in tree)
        await broker.delete("g")
        await cluster.until(lambda tree: set(tree) == {""})

    with_cluster(story)


def test_members_of_the_newer_protocol_come_and_go() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.beat("g", "a")
        await cluster.until(lambda tree: set(owners(tree, "g")) == {"0", "1"})
        assert {data for data, _owner in owners(await cluster.look(), "g").values()} == {b"a"}
        await broker.beat("g", "b")
        await cluster.until(lambda tree: "/g/ids/b" in tree)
        await broker.beat("g", "b", -1)
        await cluster.until(lambda tree: "/g/ids/b" not in tree)

    with_cluster(story)


def test_a_watch_tells_of_a_member_and_of_an_owner() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.commit("g", 0, 1)
        await cluster.until_offset("g", 0, 1)
        told: asyncio.Queue[WatchEvent] = asyncio.Queue()
        await cluster.client.children("/consumers/g/ids", watch=told.put_nowait)
        await cluster.client.exists("/consumers/g/owners/t/0", watch=told.put_nowait)
        await broker.beat("g", "a")
        events = [await asyncio.wait_for(told.get(), 60) for _ in range(2)]
        assert {event.path for event in events} == {"/consumers/g/ids", "/consumers/g/owners/t/0"}

    with_cluster(story)


def test_nothing_is_shown_before_it_is_safe() -> None:
    async def story(cluster: Cluster) -> None:
        (log,) = cluster.logs
        broker = await cluster.start(1)
        await broker.commit("other", 0, 1)
        log.at_once = False
        pending = asyncio.create_task(broker.commit("g", 0, 7))
        await until_true(lambda: bool(log.waiting))
        await cluster.until_offset("other", 0, 1)
        assert "/g" not in await cluster.look()
        log.make_safe()
        await pending
        await cluster.until_offset("g", 0, 7)

    with_cluster(story)


def test_names_of_strangers_stay_in_their_place() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.join_classic("../../brokers", {"..": [0], "a/b": [1], "t": [0, -5]})
        await cluster.until_group("../../brokers", lambda tree: "/owners/t/0" in tree)
        tree = await cluster.look()
        assert {path.split("/")[1] for path in tree if path} == {"..%2F..%2Fbrokers"}
        assert [path for path in tree if path.count("/") == 4] == ["/..%2F..%2Fbrokers/owners/t/0"]

    with_cluster(story)


def test_a_group_that_does_not_fit_is_told_once_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        for offset in range(3):
            await broker.commit("x" * 900, 0, offset)
            await broker.commit("g", 0, offset)
            await cluster.until_offset("g", 0, offset)
        assert {path.split("/")[1] for path in await cluster.look() if path} == {"g"}

    with_cluster(story)
    assert [record.levelname for record in caplog.records if "900 characters" in record.message] == ["WARNING"]


def test_many_groups_of_many_partitions() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        names = [f"group-{number}" for number in range(500)]
        for name in names:
            await broker.commit(name, 0, 1)
        await cluster.until(lambda tree: sum(path.endswith("/offsets/t/0") for path in tree) == len(names))

    with_cluster(story, partitions=4)


# --- coordinators that move ---


def test_another_coordinator_takes_everything_over() -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        two = await cluster.start(2, leads=False)
        member_id = await one.join_classic("g", {"t": [0]})
        await one.commit("h", 0, 4)
        await cluster.until(lambda tree: bool(owners(tree, "g")))
        await cluster.until_offset("h", 0, 4)
        await cluster.elect(two)
        one.coordinator.resign(0)
        ours = two.znodes.session_id
        await cluster.until(lambda tree: owners(tree, "g") == {"0": (member_id.encode(), ours)})
        await cluster.until(lambda tree: tree.get(f"/g/ids/{member_id}", (b"", 0))[1] == ours)
        await two.commit("h", 0, 5)
        await cluster.until_offset("h", 0, 5)
        await one.znodes.close()
        assert owners(await cluster.look(), "g") == {"0": (member_id.encode(), ours)}

    with_cluster(story)


def test_a_coordinator_that_does_not_know_yet_writes_nothing_any_more() -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        two = await cluster.start(2, leads=False)
        await one.commit("g", 0, 1)
        await cluster.until_offset("g", 0, 1)
        await cluster.elect(two)
        await two.commit("g", 0, 2)
        await cluster.until_offset("g", 0, 2)
        await one.commit("g", 0, 77)
        await one.commit("new", 0, 77)
        await two.commit("last", 0, 3)
        await cluster.until_offset("last", 0, 3)
        for offset in range(10, 20):  # the other one keeps trying meanwhile
            await two.commit("g", 0, offset)
            await cluster.until_offset("g", 0, offset)
        assert "/new" not in await cluster.look()

    with_cluster(story)


def test_a_coordinator_that_resigns_takes_its_ephemeral_nodes_along() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.beat("g", "a")
        await broker.commit("h", 0, 4)
        await cluster.until(lambda tree: len(owners(tree, "g")) == 2)
        await cluster.until_offset("h", 0, 4)
        broker.coordinator.resign(0)
        await cluster.until(lambda tree: not owners(tree, "g") and "/g/ids/a" not in tree)
        assert "/h/offsets/t/0" in await cluster.look()
        await cluster.elect(broker)
        await cluster.until(lambda tree: len(owners(tree, "g")) == 2)

    with_cluster(story)


def test_groups_that_are_no_more_are_removed_by_the_next_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        await one.beat("gone", "a")
        await cluster.until(lambda tree: len(owners(tree, "gone")) == 2)
        await one.stop()
        await cluster.client.create("/consumers/somebody", b"")
        await cluster.client.create("/consumers/somebody/ids")
        cluster.logs[0].records.clear()
        cluster.logs[0].safe = 0
        await cluster.start(2)
        await cluster.until(lambda tree: "/gone" not in tree)
        assert set(await cluster.look()) == {"", "/somebody", "/somebody/ids"}

    with_cluster(story)


def test_a_coordinator_that_is_not_told_of_topics_yet_looks_again() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.client.create("/consumers/gone", b'{"version":1,"coordinator":7}')
        broker = await cluster.start(1, leads=False)
        broker.knows_topics = False
        await cluster.elect(broker)
        for _ in range(100):
            await asyncio.sleep(0)
        assert "/gone" in await cluster.look()
        broker.knows_topics = True
        await cluster.until(lambda tree: "/gone" not in tree)

    with_cluster(story)


def test_only_groups_of_its_own_partitions_are_a_coordinators_business() -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1, leads=False)
        two = await cluster.start(2, leads=False)
        await cluster.elect(one, 0)
        await cluster.elect(two, 1)
        names = [f"group-{number}" for number in range(20)]
        by_partition = {0: one, 1: two}
        for name in names:
            await by_partition[partition_for(name, 2)].commit(name, 0, 1)
        await cluster.until(lambda tree: all(f"/{name}/offsets/t/0" in tree for name in names))
        one.coordinator.resign(0)
        await cluster.elect(two, 0)
        await two.commit(next(name for name in names if partition_for(name, 2) == 0), 0, 2)
        await cluster.until(lambda tree: any(data == b"2" for data, _owner in tree.values()))
        tree = await cluster.look()
        assert all(f"/{name}/offsets/t/0" in tree for name in names)

    with_cluster(story, partitions=2)


def test_a_group_with_nodes_of_somebody_else_keeps_those() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await cluster.client.create("/consumers/g/notes", make_parents=True)
        await broker.beat("g", "a")
        await cluster.until(lambda tree: len(owners(tree, "g")) == 2)
        await broker.beat("g", "a", -1)
        await broker.delete("g")
        await cluster.until(lambda tree: "/g/ids" not in tree)
        assert (await cluster.look())["/g"] == (b"", 0)
        assert set(await cluster.look()) == {"", "/g", "/g/notes"}

    with_cluster(story)


def test_a_log_that_is_loaded_anew_is_compared_with_the_tree() -> None:
    async def story(cluster: Cluster) -> None:
        (log,) = cluster.logs
        broker = await cluster.start(1)
        await broker.commit("gone", 0, 1)
        await broker.commit("g", 0, 1)
        await cluster.until_offset("gone", 0, 1)
        await cluster.until_offset("g", 0, 1)
        log.records = [record for record in log.records if "gone" not in repr(record)]
        broker.coordinator.resign(0)
        await cluster.elect(broker)
        await cluster.until(lambda tree: "/gone" not in tree)
        assert "/g/offsets/t/0" in await cluster.look()

    with_cluster(story)


# --- a store that fails ---


class Flaky(EmbeddedSession):
    """Loses the answers of some writes, of which every other one has happened."""

    failing = 0

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        if self.failing:
            self.failing -= 1
            if self.failing % 2:
                await super().multi(operations)
            raise ConnectionLost("lost")
        return await super().multi(operations)


def test_a_lost_answer_is_no_lost_change(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        assert isinstance(broker.znodes, EmbeddedSession)
        broker.znodes.__class__ = Flaky
        flaky = broker.znodes
        assert isinstance(flaky, Flaky)
        for at in range(1, 12):
            flaky.failing = at
            await broker.commit("g", 0, at)
            await broker.beat("h", f"member-{at}")
            await cluster.until_offset("g", 0, at)
            await cluster.until(lambda tree, at=at: f"/h/ids/member-{at}" in tree)  # type: ignore[misc]
        flaky.failing = 5
        broker.coordinator.resign(0)
        await cluster.until(lambda tree: not any(owner for _data, owner in tree.values()))

    caplog.set_level(logging.INFO)
    with_cluster(story)
    told = [record.message for record in caplog.records if record.name.endswith("group_registry")]
    assert any("cannot be mirrored" in line for line in told)
    assert any("mirrored again" in line for line in told)


def test_what_somebody_else_changed_is_put_right_when_a_write_finds_it() -> None:
    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.commit("g", 0, 1)
        await broker.commit("g", 1, 1)
        await cluster.until_offset("g", 1, 1)
        await cluster.client.delete("/consumers/g/offsets/t/0")
        await cluster.client.set("/consumers/g/offsets/t/1", b"nonsense")
        await cluster.client.create("/consumers/g/offsets/x")
        await broker.commit("g", 0, 2)
        await cluster.until_offset("g", 0, 2)
        await cluster.until_offset("g", 1, 1)
        await cluster.until(lambda tree: "/g/offsets/x" not in tree)
        await cluster.client.delete_recursively("/consumers/g")
        await broker.commit("g", 0, 3)
        await cluster.until_offset("g", 0, 3)
        await cluster.until_offset("g", 1, 1)

    with_cluster(story)


def test_a_mirror_that_fails_does_no_harm_to_groups(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("a bug"), RuntimeError("a bug")]
    take = GroupClaims.take

    async def failing(self: GroupClaims, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await take(self, *arguments)

    monkeypatch.setattr(GroupClaims, "take", failing)

    async def story(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        await broker.commit("g", 0, 1)
        await broker.commit("g", 0, 2)
        await cluster.until_offset("g", 0, 2)

    with_cluster(story)
    assert not failures
    assert "a bug" in caplog.text
