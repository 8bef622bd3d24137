"""ZooKeeper's own side: reaching it, authentication and ACLs, what others see of our tree, and bulk work."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from zookeeper_cases import Told, connect, with_kazoo

from tidelog.znodes import paths
from tidelog.znodes.errors import BadArguments, MultiError, NotAllowed, StoreUnavailable, TooLarge
from tidelog.znodes.store import REQUEST_MAX_BYTES, Create, EventType, SetData, WatchEvent
from tidelog.znodes.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.znodes.launcher import ZooKeeperServers

BROKER = ("broker", "its: password")


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_servers_that_cannot_be_reached_are_named(deaf_port: int, closed_port: int) -> None:
    servers = f"127.0.0.1:{closed_port},127.0.0.1:{deaf_port},no-such-host.invalid:2181"
    with pytest.raises(StoreUnavailable) as refusal:
        asyncio.run(open_zookeeper(servers + "/root", session_timeout_ms=1_000, connection_timeout_ms=1_500))
    message = str(refusal.value)
    assert "within 1500 ms" in message
    assert f"127.0.0.1:{closed_port} (Connection refused), 127.0.0.1:{deaf_port}, no-such-host.invalid:2181" in message
    assert "check zookeeper.connect" in message


@pytest.mark.parametrize("text", ["", "/only/a/path", "host:port", "host:99999", "user@host", "a,,b", "host/a//b"])
def test_connect_strings_that_make_no_sense(text: str) -> None:
    with pytest.raises(BadArguments, match=r"zookeeper\.connect="):
        asyncio.run(connect(text))


def test_kazoo_is_loaded_only_when_it_is_needed() -> None:
    code = "import sys, tidelog.znodes.zookeeper, tidelog.znodes.launcher; assert 'kazoo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_path_our_root_is_that_of_the_servers(zookeeper: ZooKeeperServers) -> None:
    async def scenario() -> None:
        store = await connect(zookeeper.connect_string)
        assert "zookeeper" in await store.children("/")
        with pytest.raises(BadArguments):
            await store.delete("/")
        with pytest.raises(MultiError) as refusal:
            await store.multi([Create("/not-made"), SetData("/not-made", b"x", 7)])
        assert refusal.value.index == 1
        told = Told()
        await store.exists("/at-the-root", watch=told)
        assert await store.create("/at-the-root", ephemeral=True) == "/at-the-root"
        assert await told.next() == WatchEvent(EventType.CREATED, "/at-the-root")
        await store.close()

    asyncio.run(scenario())


def test_another_client_reads_our_tree_and_its_changes_are_told(own_root: str) -> None:
    async def scenario() -> None:
        store = await connect(own_root)
        told = Told()
        await store.create(paths.broker(7), b'{"version":5}', ephemeral=True, make_parents=True)
        await store.create("/config/changes/config_change_", b"x", sequential=True, make_parents=True)
        await store.children("/brokers/ids", watch=told)
        await store.get("/config", watch=told)

        def look(client: Any) -> None:
            data, stat = client.get("/brokers/ids/7")
            assert (data, stat.ephemeralOwner) == (b'{"version":5}', store.session_id)
            assert client.get_children("/config/changes") == ["config_change_0000000000"]
            assert client.get_acls("/brokers")[0][0].acl_list == ["ALL"]
            client.create("/brokers/ids/8", b"theirs")
            client.set("/config", b"changed")

        await asyncio.to_thread(with_kazoo, own_root, look)
        assert {await told.next(), await told.next()} == {
            WatchEvent(EventType.CHILDREN_CHANGED, "/brokers/ids"),
            WatchEvent(EventType.DATA_CHANGED, "/config"),
        }
        assert (await store.get("/brokers/ids/8"))[0] == b"theirs"
        await store.close()

    asyncio.run(scenario())


def test_nodes_without_data_are_empty(own_root: str) -> None:
    async def scenario() -> None:
        store = await connect(own_root)
        await asyncio.to_thread(with_kazoo, own_root, lambda client: client.create("/null", None))
        assert (await store.get("/null"))[0] == b""
        (found,) = await store.get_many(["/null"])
        assert found is not None
        assert found[0] == b""
        await store.close()

    asyncio.run(scenario())


def test_protected_nodes_can_be_changed_only_by_their_creator(own_root: str) -> None:
    async def scenario() -> None:
        ours = await connect(own_root, digest=BROKER, protect=True)
        same = await connect(own_root, digest=BROKER, protect=True)
        stranger = await connect(own_root)
        impostor = await connect(own_root, digest=("broker", "guessed"), protect=True)
        await ours.create(paths.topic("t"), b"readable", make_parents=True)
        await ours.multi([Create("/config"), Create(paths.CONFIG_USERS), Create(f"{paths.CONFIG_USERS}/u", b"secret")])
        await ours.create(paths.CONSUMERS)
        assert (await same.get(f"{paths.CONFIG_USERS}/u"))[0] == b"secret"
        assert (await same.set(paths.topic("t"), b"changed")).version == 1
        for other in (stranger, impostor):
            assert (await other.get(paths.topic("t")))[0] == b"changed"
            assert await other.children("/brokers/topics") == ["t"]
            for refused in (
                other.set(paths.topic("t"), b"no"),
                other.delete(paths.topic("t")),
                other.create(paths.topic("mine")),
                other.get(f"{paths.CONFIG_USERS}/u"),
                other.children(paths.CONFIG_USERS),
                other.get_many([paths.topic("t"), f"{paths.CONFIG_USERS}/u"]),
            ):
                with pytest.raises(NotAllowed, match=r"tidelog\.zookeeper\.digest"):
                    await refused
            with pytest.raises(MultiError) as refusal:
                await other.multi([SetData(paths.topic("t"), b"no")])
            assert isinstance(refusal.value.cause, NotAllowed)
        # Consumers of old write there themselves, so anybody may.
        await stranger.create(f"{paths.CONSUMERS}/their-group")
        for store in (ours, same, stranger, impostor):
            await store.close()

    asyncio.run(scenario())


def test_acls_are_what_other_tools_expect(own_root: str) -> None:
    async def scenario() -> None:
        store = await connect(own_root, digest=BROKER, protect=True)
        await store.create(paths.topic("t"), make_parents=True)

        def look(client: Any) -> None:
            acls = client.get_acls(paths.topic("t"))[0]
            assert sorted((acl.id.scheme, tuple(acl.acl_list)) for acl in acls) == [
                ("digest", ("ALL",)),
                ("world", ("READ",)),
            ]

        await asyncio.to_thread(with_kazoo, own_root, look)
        await store.close()

    asyncio.run(scenario())


def test_protection_needs_somebody_to_protect_for() -> None:
    with pytest.raises(BadArguments, match=r"needs tidelog\.zookeeper\.digest"):
        asyncio.run(connect("host:2181", protect=True))
    for digest in (("", "password"), ("with:colon", "password")):
        with pytest.raises(BadArguments, match="must be user:password"):
            asyncio.run(connect("host:2181", digest=digest))


def test_the_size_of_a_request_counts_the_path_of_our_root(zookeeper: ZooKeeperServers) -> None:
    """A server that is sent too much ends the connection, every time it is tried again."""

    async def scenario() -> None:
        store = await connect(f"{zookeeper.connect_string}/{'r' * 900}")
        operations = [Create(f"/{number}") for number in range(2_000)]
        with pytest.raises(TooLarge):
            await store.multi(operations)
        await store.multi(operations[:1_000])
        await store.create("/large", bytes(REQUEST_MAX_BYTES - 1_000))
        assert await store.delete_recursively("/large")
        await store.close()

    asyncio.run(scenario())


def test_servers_that_know_no_bulk_reads_are_asked_node_by_node(own_root: str) -> None:
    async def scenario() -> None:
        store = await connect(own_root)
        store._reads_many = False  # type: ignore[attr-defined]
        await store.multi([Create(f"/n{number}", str(number).encode()) for number in range(0, 250, 2)])
        found = await store.get_many([f"/n{number}" for number in range(250)])
        assert [entry and entry[0] for entry in found] == [
            None if number % 2 else str(number).encode() for number in range(250)
        ]
        await store.create("/a/b/c", make_parents=True)
        await store.close()

    asyncio.run(scenario())


def test_ten_thousand_nodes_in_bulk(own_root: str, record_property: Callable[[str, object], None]) -> None:
    """As a controller writes and loads them. The speed is reported, never judged."""
    nodes, per_multi = 10_000, 200

    async def write_and_read() -> None:
        store = await connect(own_root)
        await store.create("/t")
        began = time.perf_counter()
        await asyncio.gather(
            *(
                store.multi([Create(f"/t/{number}", b"{}" * 40) for number in range(start, start + per_multi)])
                for start in range(0, nodes, per_multi)
            )
        )
        written = time.perf_counter()
        found = await store.get_many([f"/t/{number}" for number in range(nodes)])
        read = time.perf_counter()
        assert all(entry is not None and entry[0] == b"{}" * 40 for entry in found)
        assert await store.delete_recursively("/t")
        await store.close()
        record_property("creates_per_second", round(nodes / (written - began)))
        record_property("reads_per_second", round(nodes / (read - written)))

    asyncio.run(write_and_read())
