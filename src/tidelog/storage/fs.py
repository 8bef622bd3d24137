"""The file system as this room sees it, and the only module that opens files.

`Filesystem` is narrow on purpose: a double that forgets what was not synced fits behind it. Paths are strings joined
with a slash, since ten thousand partitions are opened at start. Nothing here is durable until `File.sync` (content)
and `Filesystem.sync_dir` (names) have returned.
"""
# ruff: noqa: PTH110, PTH102, PTH105, PTH106, PTH108
# pathlib costs several times the system call, and knows nothing of file descriptors.

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """A regular file, open for reading and writing. It is closed when the last reference to it is gone."""

    def pread(self, count: int, position: int) -> bytes:
        """Up to `count` bytes; fewer at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> int:
        """How many bytes were taken, which can be fewer than given."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once content and length would survive a power cut. The file's name is another matter."""

    def fileno(self) -> int | None:
        """The descriptor for sendfile, or None if there is none."""


class Lock(Protocol):
    def release(self) -> None: ...


class Entry(NamedTuple):
    name: str
    is_dir: bool
    size: int
    modified_ms: int


class Space(NamedTuple):
    total_bytes: int
    usable_bytes: int


class Filesystem(Protocol):
    """Failures are OSError with the usual errno; `lock` raises BlockingIOError when somebody holds it."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def scan(self, path: str) -> list[Entry]: ...

    def exists(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Replaces a file named `target`, atomically."""

    def remove(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Return once the names created, renamed and removed in `path` would survive a power cut."""

    def lock(self, path: str) -> Lock: ...

    def space(self, path: str) -> Space: ...


class FileSlice:
    """A range of a file that goes to a socket. Holding it keeps the file readable, even when its name is gone.

    A truncation can still shorten the file below the range (only what was never acknowledged is cut): a sender then
    finds fewer bytes than `size` and has to give up on the connection.
    """

    __slots__ = ("_file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self._file = file
        self.position = position
        self.size = size

    def fileno(self) -> int | None:
        return self._file.fileno()

    def read(self, start: int = 0, count: int | None = None) -> bytes:
        """Bytes of the slice from its `start`-th on; never beyond the slice."""
        left = max(0, self.size - start)
        return read_fully(self._file, self.position + start, left if count is None else min(count, left))


def read_fully(file: File, position: int, count: int) -> bytes:
    """`count` bytes, fewer only if the file ends before them."""
    data = file.pread(count, position)
    if len(data) == count or not data:
        return data
    parts = [data]
    missing = count - len(data)
    while missing and (data := file.pread(missing, position + count - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def write_fully(file: File, data: Buffer, position: int) -> None:
    """All of `data`, however often the file system takes only a part."""
    written = file.pwrite(data, position)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(data):
        written += file.pwrite(rest[written:], position + written)


def read_file(fs: Filesystem, path: str, max_bytes: int) -> bytes:
    """A small file as a whole. More than `max_bytes` is cut off: whoever parses it finds it damaged."""
    file = fs.open(path)
    return read_fully(file, 0, min(file.size(), max_bytes))


def replace_file(fs: Filesystem, path: str, data: bytes) -> None:
    """Durably put `data` in place of whatever `path` was: a crash leaves the old content or the new, never a mix."""
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True)
    file.truncate(0)
    write_fully(file, data, 0)
    file.sync()
    fs.rename(temporary, path)
    fs.sync_dir(parent_of(path))


def remove_tree(fs: Filesystem, path: str) -> None:
    for entry in fs.scan(path):
        inner = f"{path}/{entry.name}"
        if entry.is_dir:
            remove_tree(fs, inner)
        else:
            remove_if_there(fs, inner)
    fs.remove_dir(path)


def remove_if_there(fs: Filesystem, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fs.remove(path)


def make_dirs(fs: Filesystem, path: str) -> None:
    """Make `path` and what is missing above it, durably."""
    if not path or fs.exists(path):
        return
    parent = parent_of(path)
    make_dirs(fs, parent)
    fs.make_dir(path)
    fs.sync_dir(parent)


def parent_of(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


class RealFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        # CPython counts references, so the descriptor goes exactly when the last holder does (the pool, a slice being
        # sent, a flush in a thread), without anybody keeping a second count.
        _close(self._fd)

    def pread(self, count: int, position: int) -> bytes:
        return os.pread(self._fd, count, position)

    def pwrite(self, data: Buffer, position: int) -> int:
        return os.pwrite(self._fd, data, position)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int | None:
        return self._fd


class RealLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class RealFilesystem:
    """POSIX. Stateless: one is as good as another."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def scan(self, path: str) -> list[Entry]:
        with os.scandir(path) as entries:
            return [_entry(each) for each in entries]

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dir(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _entry(entry: os.DirEntry[str]) -> Entry:
    if entry.is_dir():
        # A data directory lists thousands of partitions: nobody needs their directories' own size.
        return Entry(entry.name, is_dir=True, size=0, modified_ms=0)
    found = entry.stat()
    return Entry(entry.name, is_dir=False, size=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000)
