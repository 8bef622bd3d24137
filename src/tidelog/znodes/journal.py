"""Where the embedded store keeps its nodes: SQLite, in one thread of its own so that the event loop never waits.

A commit returns when the change is on disk (WAL, synchronous=FULL). Ephemeral nodes are not written, since a restart
ends the session that they belong to; what they did to their parent's counters is.
"""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.znodes.errors import StoreDamaged, StoreFull, StoreInUse, StoreUnavailable
from tidelog.znodes.path_rules import ROOT, parent_of
from tidelog.znodes.tree import EMPTY_ROOT, Changes, Node

if TYPE_CHECKING:
    from pathlib import Path

_APPLICATION_ID = 0x54444C5A  # "TDLZ": tells our files from other SQLite databases
_FORMAT_VERSION = 1

_SCHEMA = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, version INTEGER NOT NULL, children_created INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE progress (zxid INTEGER NOT NULL);
INSERT INTO progress VALUES (0);
"""
_COLUMNS = "path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, children_created, checksum"

_Row = tuple[str, bytes, int, int, int, int, int, int, int, int]


def _checksum(path: str, node: Node) -> int:
    """SQLite notices damage to its own structure only, not to what it stores."""
    return zlib.crc32(node.data, zlib.crc32(f"{path}{node[1:8]}".encode()))


def _rolled_back(connection: sqlite3.Connection, error: sqlite3.Error) -> sqlite3.Error:
    """The error to report: a transaction that cannot even be undone is worse than what stopped it."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as worse:
        return worse
    return error


class Loaded(NamedTuple):
    nodes: dict[str, Node]
    zxid: int


class Journal(Protocol):
    """What makes a change durable."""

    async def commit(self, changes: Changes, zxid: int) -> None:
        """Returns when the changes are on disk. Raises StoreFull if nothing was written and it may be tried again,
        and StoreUnavailable if nothing can be said of what is on disk any more."""

    async def close(self) -> None: ...


class MemoryJournal:
    """Keeps nothing: for tests and simulations that do not restart."""

    async def commit(self, changes: Changes, zxid: int) -> None:
        pass

    async def close(self) -> None:
        pass


class SqliteJournal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="znodes")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def open(self) -> Loaded:
        """Reads everything. Raises StoreInUse, StoreDamaged or StoreUnavailable, each saying what to do."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._open)
        except BaseException:
            await self.close()
            raise

    async def commit(self, changes: Changes, zxid: int) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")
        await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, changes, zxid)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _open(self) -> Loaded:
        try:
            self._connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            self._take_over(self._connection)
            return self._load(self._connection)
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _take_over(self, connection: sqlite3.Connection) -> None:
        """Exclusive for as long as the connection lives: a second broker on the same file would undo the first."""
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN EXCLUSIVE")
        application_id, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not application_id and not tables:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={_FORMAT_VERSION}")
        elif application_id != _APPLICATION_ID:
            raise StoreDamaged(f"{self.path} is a database of another program: set log.dirs to another directory")
        elif version != _FORMAT_VERSION:
            raise StoreUnavailable(
                f"{self.path} has format {version}, which a newer Tidelog wrote; this one reads {_FORMAT_VERSION}"
            )
        connection.execute("COMMIT")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise self._damaged(verdict)

    def _load(self, connection: sqlite3.Connection) -> Loaded:
        rows: list[_Row] = connection.execute(f"SELECT {_COLUMNS} FROM nodes").fetchall()  # noqa: S608 - our constant
        counts = dict.fromkeys((row[0] for row in rows), 0)
        counts.setdefault(ROOT, 0)
        for path in counts:
            if path != ROOT:
                parent = parent_of(path)
                if parent not in counts:
                    raise self._damaged(f"node {path} has no parent")
                counts[parent] += 1
        nodes = {ROOT: EMPTY_ROOT}
        for row in rows:
            path, checksum = row[0], row[9]
            node = Node(*row[1:9], counts[path], 0)
            if _checksum(path, node) != checksum:
                raise self._damaged(f"node {path} does not fit its checksum")
            nodes[path] = node
        progress = connection.execute("SELECT zxid FROM progress").fetchone()
        if progress is None:
            raise self._damaged("it does not know how far it was written")
        return Loaded(nodes, progress[0])

    def _commit(self, changes: Changes, zxid: int) -> None:
        connection = self._connection
        assert connection is not None
        kept = [
            (path, *node[:8], _checksum(path, node))
            for path, node in changes.items()
            if node is not None and not node.owner
        ]
        gone = [(path,) for path, node in changes.items() if node is None or node.owner]
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM nodes WHERE path=?", gone)
            connection.executemany(
                f"INSERT OR REPLACE INTO nodes ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)",  # noqa: S608 - as above
                kept,
            )
            connection.execute("UPDATE progress SET zxid=?", (zxid,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explained(_rolled_back(connection, error)) from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _explained(self, error: sqlite3.Error) -> StoreUnavailable | StoreFull:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreInUse(f"{self.path} is in use by another broker: stop it, or set log.dirs to another directory")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(str(error))
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self.path} could not grow: the disk is full")
        return StoreUnavailable(f"{self.path} cannot be used: {error}")

    def _damaged(self, detail: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self.path} is damaged ({detail}): restore it from a backup. It holds topics, their ids and settings; "
            "the records in the partition directories are not in it"
        )
