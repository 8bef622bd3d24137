"""A file system in memory that forgets, when the machine crashes, what nobody synced.

`kill -9` cannot show whether an acknowledged record would survive a power cut: the kernel keeps what the process wrote.
This double can. Content is durable after `File.sync`, names after `sync_dir` of their directory; `crash` takes back the
rest: all of it, none, or a part chosen by the seed, page by page, so that torn writes and holes appear as they do on
disks. Names come back as far as a journal would have them: a directory's changes in order, up to some point. It also
fails on demand: errors at the n-th call of an operation, and short writes.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from tidelog.storage.fs import Buffer, Entry, Space, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_BYTES = 4096


class Forget(Enum):
    """What a crash does to that which was not synced."""

    EVERYTHING = "everything"
    SOMETHING = "something"
    NOTHING = "nothing"
    """As `kill -9`: the process is gone, the kernel is not."""


class Inode:
    """A file's content, as programs see it and as the disk has it."""

    __slots__ = ("_page_bytes", "dirty_pages", "durable", "live", "modified_ms")

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self.live = bytearray()
        self.durable = b""
        self.dirty_pages: set[int] = set()
        self.modified_ms = 0

    def touch(self, start: int, end: int) -> None:
        self.dirty_pages.update(range(start // self._page_bytes, max(start, end - 1) // self._page_bytes + 1))

    def sync(self) -> None:
        self.durable = bytes(self.live)
        self.dirty_pages.clear()

    def crash(self, forget: Forget, chance: random.Random) -> None:
        if forget is Forget.EVERYTHING:
            self.live = bytearray(self.durable)
        elif forget is Forget.SOMETHING:
            self.live = self._mixture(chance)
        self.sync()

    def _mixture(self, chance: random.Random) -> bytearray:
        """A length between the two, each page new or old; what is neither is zeros."""
        shorter, longer = sorted((len(self.live), len(self.durable)))
        size = chance.choice((len(self.live), len(self.durable), chance.randint(shorter, longer)))
        mixed = bytearray(size)
        mixed[: min(size, len(self.durable))] = self.durable[:size]
        for page in sorted(self.dirty_pages):
            if chance.random() < 0.5:
                start = page * self._page_bytes
                new = self.live[start : start + self._page_bytes]
                mixed[start : start + len(new)] = new
        return mixed[:size]


class Directory:
    """Names, as programs see them and as the disk has them, and the changes in between."""

    __slots__ = ("durable", "journal", "live")

    def __init__(self) -> None:
        self.live: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.journal: list[Callable[[dict[str, Inode | Directory]], object]] = []

    def change(self, step: Callable[[dict[str, Inode | Directory]], object]) -> None:
        step(self.live)
        self.journal.append(step)

    def sync(self) -> None:
        self.durable = dict(self.live)
        self.journal.clear()

    def crash(self, forget: Forget, chance: random.Random) -> None:
        kept = {
            Forget.EVERYTHING: 0,
            Forget.SOMETHING: chance.randint(0, len(self.journal)),
            Forget.NOTHING: len(self.journal),
        }[forget]
        for step in self.journal[:kept]:
            step(self.durable)
        self.live = self.durable
        self.sync()
        for child in self.live.values():
            child.crash(forget, chance)


class ForgetfulFile:
    """An open file. It is dead after a crash, as its process is."""

    __slots__ = ("_fs", "_life", "_path", "inode")

    def __init__(self, fs: ForgetfulFilesystem, path: str, inode: Inode) -> None:
        self._fs = fs
        self._path = path
        self._life = fs.life
        self.inode = inode

    def pread(self, count: int, position: int) -> bytes:
        self._operation("read")
        return bytes(self.inode.live[position : position + count])

    def pwrite(self, data: Buffer, position: int) -> int:
        self._operation("write")
        taken = memoryview(data)[: self._fs.take_short_write(len(data))]
        live = self.inode.live
        if len(live) < position:
            live.extend(bytes(position - len(live)))
        live[position : position + len(taken)] = taken
        self.inode.touch(position, position + len(taken))
        self.inode.modified_ms = self._fs.now_ms
        return len(taken)

    def size(self) -> int:
        self._operation("size")
        return len(self.inode.live)

    def truncate(self, size: int) -> None:
        self._operation("truncate")
        live = self.inode.live
        self.inode.touch(min(size, len(live)), max(size, len(live)))
        if size < len(live):
            del live[size:]
        else:
            live.extend(bytes(size - len(live)))

    def sync(self) -> None:
        self._operation("sync")
        self.inode.sync()

    def fileno(self) -> int | None:
        return None

    def _operation(self, name: str) -> None:
        assert self._life == self._fs.life, "the process that opened this file has crashed"
        self._fs.operation(name, self._path)


class ForgetfulLock:
    __slots__ = ("_fs", "_path")

    def __init__(self, fs: ForgetfulFilesystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def release(self) -> None:
        self._fs.locked.discard(self._path)


class ForgetfulFilesystem:
    """Holds one machine's files. `now_ms` is what new modification times say."""

    def __init__(self, seed: int = 0, page_bytes: int = PAGE_BYTES) -> None:
        """`page_bytes` is how finely a crash tears."""
        self._page_bytes = page_bytes
        self._chance = random.Random(seed)  # noqa: S311 - chance must repeat
        self._root = Directory()
        self._failures: dict[str, dict[int, int]] = {}
        self._short_writes: dict[int, int] = {}
        self.now_ms = 0
        self.life = 0
        self.locked: set[str] = set()
        self.calls: Counter[str] = Counter()
        """How often each operation was asked for."""
        self.opened: Counter[str] = Counter()
        """How often each path was opened."""

    # -- making it fail -----------------------------------------------------------------------------------------

    def crash(self, forget: Forget = Forget.EVERYTHING) -> None:
        """The machine goes down and comes up again."""
        self._root.crash(forget, self._chance)
        self.life += 1
        self.locked.clear()
        self._failures.clear()
        self._short_writes.clear()

    def fail(self, operation: str, error: int, after: int = 0) -> None:
        """Let a coming call of `operation` fail with errno `error`, once, `after` more that succeed."""
        self._failures.setdefault(operation, {})[self.calls[operation] + after + 1] = error

    def shorten_write(self, count: int, after: int = 0) -> None:
        """Let a coming write take no more than `count` bytes, once."""
        self._short_writes[self.calls["write"] + after + 1] = count

    def operation(self, name: str, path: str) -> None:
        self.calls[name] += 1
        error = self._failures.get(name, {}).pop(self.calls[name], None)
        if error is not None:
            raise OSError(error, os.strerror(error), path)

    def take_short_write(self, count: int) -> int:
        return min(count, self._short_writes.pop(self.calls["write"], count))

    # -- Filesystem ---------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> ForgetfulFile:
        self.operation("open", path)
        directory, name = self._parent(path)
        found = directory.live.get(name)
        if found is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.operation("create", path)
            found = fresh = Inode(self._page_bytes)
            directory.change(lambda names: names.update({name: fresh}))
        if isinstance(found, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.opened[path] += 1
        return ForgetfulFile(self, path, found)

    def scan(self, path: str) -> list[Entry]:
        self.operation("scan", path)
        return [
            Entry(name, is_dir=True, size=0, modified_ms=0)
            if isinstance(node, Directory)
            else Entry(name, is_dir=False, size=len(node.live), modified_ms=node.modified_ms)
            for name, node in self._directory(path).live.items()
        ]

    def exists(self, path: str) -> bool:
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return False
        return name in directory.live or not name

    def make_dir(self, path: str) -> None:
        self.operation("make_dir", path)
        directory, name = self._parent(path)
        if name in directory.live:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        fresh = Directory()
        directory.change(lambda names: names.update({name: fresh}))

    def rename(self, source: str, target: str) -> None:
        self.operation("rename", source)
        assert parent_of(source) == parent_of(target), "renames stay within a directory"
        directory, old = self._parent(source)
        _, new = self._parent(target)
        if old not in directory.live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

        def move(names: dict[str, Inode | Directory]) -> None:
            names[new] = names.pop(old)

        directory.change(move)

    def remove(self, path: str) -> None:
        self.operation("remove", path)
        directory, name = self._parent(path)
        if not isinstance(directory.live.get(name), Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        directory.change(lambda names: names.pop(name))

    def remove_dir(self, path: str) -> None:
        self.operation("remove_dir", path)
        if self._directory(path).live:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        directory, name = self._parent(path)
        directory.change(lambda names: names.pop(name))

    def sync_dir(self, path: str) -> None:
        self.operation("sync_dir", path)
        self._directory(path).sync()

    def lock(self, path: str) -> ForgetfulLock:
        self.open(path, create=True)
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self.locked.add(path)
        return ForgetfulLock(self, path)

    def space(self, path: str) -> Space:
        self._directory(path)
        return Space(1 << 40, 1 << 39)

    # -- inside -------------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[Directory, str]:
        return self._directory(parent_of(path)), path.rpartition("/")[2]

    def _directory(self, path: str) -> Directory:
        node: Inode | Directory = self._root
        for name in filter(None, path.split("/")):
            found = node.live.get(name) if isinstance(node, Directory) else None
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = found
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node
