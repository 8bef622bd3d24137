"""A bounded pool of open files: thousands of segments, a few hundred descriptors.

Each segment owns a `PooledFile`, opened when first used and closed by the pool when others need its place. Eviction
only drops the pool's reference: a slice on its way to a socket, or a flush in a thread, keeps the file itself open.
Not thread safe: the event loop owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.storage.fs import File, Filesystem


class PooledFile:
    """A path that is open or not. `used` is the second-chance bit: cheaper on the hot path than moving in a list."""

    __slots__ = ("_file", "_pool", "path", "used")

    def __init__(self, pool: OpenFiles, path: str) -> None:
        self._pool = pool
        self._file: File | None = None
        self.path = path
        self.used = False

    def get(self) -> File:
        file = self._file
        if file is None:
            # Not yet `used`: who is opened once and never again should not outstay who comes back.
            file = self._file = self._pool.open(self)
        else:
            self.used = True
        return file

    def create(self) -> File:
        """Open it empty, whatever an earlier attempt left there."""
        file = self._file = self._pool.open(self, create=True)
        if file.size():
            file.truncate(0)
        return file

    def close(self) -> None:
        """Let go of the file. A later `get` opens it again, at the path of that time."""
        self._file = None
        self._pool.forget(self)


class OpenFiles:
    __slots__ = ("_fs", "_limit", "_open")

    def __init__(self, fs: Filesystem, limit: int) -> None:
        assert limit > 0
        self._fs = fs
        self._limit = limit
        self._open: dict[PooledFile, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, pooled: PooledFile, *, create: bool = False) -> File:
        file = self._fs.open(pooled.path, create=create)
        self._open[pooled] = None
        if len(self._open) > self._limit:
            self._evict_one(pooled)
        return file

    def forget(self, pooled: PooledFile) -> None:
        self._open.pop(pooled, None)

    def _evict_one(self, newcomer: PooledFile) -> None:
        """The clock algorithm: whoever was used since the hand last passed goes to the back once."""
        while True:
            oldest = next(iter(self._open))
            if oldest is not newcomer and not oldest.used:
                oldest.close()
                return
            oldest.used = False
            del self._open[oldest]
            self._open[oldest] = None
