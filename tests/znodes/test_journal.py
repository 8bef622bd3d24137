"""What is on disk: it survives restarts and kills, belongs to one broker at a time, and says so when it is damaged."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, TypeVar

import pytest

from tidelog.clock import SystemClock
from tidelog.znodes.embedded import EmbeddedHome, open_embedded
from tidelog.znodes.errors import NoNode, StoreDamaged, StoreFull, StoreInUse, StoreUnavailable
from tidelog.znodes.journal import SqliteJournal
from tidelog.znodes.store import Create, Stat, ZnodeStore
from tidelog.znodes.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")


def with_store(file: Path, scenario: Callable[[ZnodeStore], Awaitable[T]]) -> T:
    async def opened() -> T:
        store = await open_embedded(file, SystemClock())
        try:
            return await scenario(store)
        finally:
            await store.close()

    return asyncio.run(opened())


async def nothing(_store: ZnodeStore) -> None:
    pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "znodes"


def test_nodes_survive_a_restart_with_all_their_numbers(file: Path) -> None:
    async def write(store: ZnodeStore) -> list[tuple[bytes, Stat] | None]:
        await store.multi([Create("/p", b"parent"), Create("/p/a", b"\x00\xff"), Create("/p/b")])
        await store.set("/p/a", b"again")
        await store.delete("/p/b")
        return await store.get_many(["/", "/p", "/p/a", "/p/b"])

    async def read(store: ZnodeStore) -> list[tuple[bytes, Stat] | None]:
        return await store.get_many(["/", "/p", "/p/a", "/p/b"])

    assert with_store(file, write) == with_store(file, read)


def test_transaction_numbers_sequences_and_session_ids_never_go_back(file: Path) -> None:
    async def step(store: ZnodeStore) -> tuple[int, str, int]:
        if await store.exists("/q") is None:
            await store.create("/q")
        path = await store.create("/q/n-", sequential=True, ephemeral=True)
        stat = await store.exists(path)
        assert stat is not None
        return stat.czxid, path, store.session_id

    steps = [with_store(file, step) for _ in range(4)]
    for numbers in zip(*steps, strict=True):
        assert sorted(set(numbers)) == list(numbers)


def test_ephemeral_nodes_do_not_survive_a_restart(file: Path) -> None:
    async def write(store: ZnodeStore) -> None:
        await store.create("/ids")
        await store.create("/ids/0", ephemeral=True)

    async def read(store: ZnodeStore) -> tuple[list[str], int]:
        return await store.children("/ids"), (await store.get("/ids"))[1].num_children

    with_store(file, write)
    assert with_store(file, read) == ([], 0)


CHILD = """
import asyncio, sys
from pathlib import Path
from tidelog.clock import SystemClock
from tidelog.znodes.embedded import EmbeddedHome, open_embedded
from tidelog.znodes.errors import StoreUnavailable

async def main() -> None:
    store = await open_embedded(Path(sys.argv[1]), SystemClock())
    await store.create("/ids")
    await store.create("/ids/0", ephemeral=True)
    for number in range(1_000_000):
        print(await store.create("/n-", str(number).encode(), sequential=True), flush=True)

try:
    asyncio.run(main())
except StoreUnavailable as error:
    print(f"{type(error).__name__}: {error}")
"""


def start_child(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(file)], stdout=subprocess.PIPE, text=True)


def test_a_killed_process_loses_nothing_it_was_told_is_done(file: Path) -> None:
    child = start_child(file)
    assert child.stdout is not None
    acknowledged = [child.stdout.readline().strip() for _ in range(50)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
    child.stdout.close()
    child.wait()

    async def read(store: ZnodeStore) -> None:
        found = await store.get_many(acknowledged)
        assert [entry[0] if entry else None for entry in found] == [
            str(number).encode() for number in range(len(acknowledged))
        ]
        assert await store.children("/ids") == []
        next_path = await store.create("/n-", sequential=True)
        assert next_path > acknowledged[-1]

    with_store(file, read)


def test_a_second_process_is_refused(file: Path) -> None:
    async def hold(_store: ZnodeStore) -> str:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, str(file), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await child.communicate()
        return output.decode()

    said = with_store(file, hold)
    assert said.startswith("StoreInUse: ")
    assert "is in use by another broker: stop it, or set log.dirs to another directory" in said


def test_a_second_store_in_the_same_process_is_refused(file: Path) -> None:
    async def open_again(_store: ZnodeStore) -> None:
        with pytest.raises(StoreInUse):
            await open_embedded(file, SystemClock())

    with_store(file, open_again)
    with_store(file, nothing)


def test_a_file_that_is_no_store(file: Path) -> None:
    file.write_bytes(b"these are not the bytes you are looking for" * 100)
    with pytest.raises(StoreDamaged, match="restore it from a backup"):
        with_store(file, nothing)
    assert file.read_bytes().startswith(b"these are not")


def test_a_database_of_another_program(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    with pytest.raises(StoreDamaged, match="another program"):
        with_store(file, nothing)


def test_a_format_of_a_newer_version(file: Path) -> None:
    with_store(file, nothing)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version=2")
    connection.close()
    with pytest.raises(StoreUnavailable, match="newer Tidelog"):
        with_store(file, nothing)


@pytest.mark.parametrize("marker", [b"CREATE TABLE nodes", b"a marked value", b"/marked-path"])
def test_overwritten_bytes_are_noticed(file: Path, marker: bytes) -> None:
    async def write(store: ZnodeStore) -> None:
        await store.multi([Create(f"/n{number}", bytes(500)) for number in range(200)])
        await store.create("/marked-path", b"a marked value")

    with_store(file, write)
    content = bytearray(file.read_bytes())
    position = content.rindex(marker)
    content[position + 5] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreDamaged, match="is damaged"):
        with_store(file, nothing)


def test_a_truncated_file_is_noticed(file: Path) -> None:
    async def write(store: ZnodeStore) -> None:
        await store.multi([Create(f"/n{number}", bytes(500)) for number in range(200)])

    with_store(file, write)
    file.write_bytes(file.read_bytes()[: 3 * 4096])
    with pytest.raises(StoreDamaged, match="is damaged"):
        with_store(file, nothing)


@pytest.mark.parametrize(
    ("sabotage", "said"),
    [("DELETE FROM nodes WHERE path='/a'", "node /a/b has no parent"), ("DELETE FROM progress", "how far")],
)
def test_contents_that_cannot_be(file: Path, sabotage: str, said: str) -> None:
    async def write(store: ZnodeStore) -> None:
        await store.create("/a/b", make_parents=True)

    with_store(file, write)
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute(sabotage)
    connection.close()
    with pytest.raises(StoreDamaged, match=said):
        with_store(file, nothing)


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be used: unable to open database file"):
        with_store(tmp_path / "no" / "znodes", nothing)


def test_every_commit_is_synced(file: Path) -> None:
    async def scenario() -> None:
        journal = SqliteJournal(file)
        await journal.open()
        assert journal._connection is not None
        settings = await asyncio.get_running_loop().run_in_executor(
            journal._thread,
            lambda connection: [
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "locking_mode")
            ],
            journal._connection,
        )
        assert settings == ["wal", 2, "exclusive"]
        await journal.close()
        with pytest.raises(StoreUnavailable):
            await journal.commit({}, 1)

    asyncio.run(scenario())


def test_a_full_disk_refuses_writes_and_nothing_else(file: Path) -> None:
    async def scenario() -> None:
        journal = SqliteJournal(file)
        loaded = await journal.open()
        assert journal._connection is not None
        loop = asyncio.get_running_loop()

        def limit_pages(count: int) -> None:
            assert journal._connection is not None
            journal._connection.execute(f"PRAGMA max_page_count={count}")

        home = EmbeddedHome(Tree(loaded.nodes), loaded.zxid, journal, SystemClock())
        store = await home.begin_session()
        await store.create("/small")
        await loop.run_in_executor(journal._thread, limit_pages, 8)
        with pytest.raises(StoreFull, match="the disk is full"):
            await store.create("/large", bytes(100_000))
        assert await store.exists("/large") is None
        await store.set("/small", b"still works")
        await loop.run_in_executor(journal._thread, limit_pages, 1_000_000)
        await store.create("/large", bytes(100_000))
        await home.close()

    asyncio.run(scenario())

    async def read(store: ZnodeStore) -> None:
        assert (await store.get("/small"))[0] == b"still works"
        assert len((await store.get("/large"))[0]) == 100_000
        with pytest.raises(NoNode):
            await store.get("/no")

    with_store(file, read)
