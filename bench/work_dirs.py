"""Where logs are written while measuring, and of what kind their memory is.

Comparisons run in memory (tmpfs): a disk would throttle both peers as soon as enough is dirty, and hide the broker.
Pages that this machine has never touched cost several times more to write than pages that come back from a deleted
file, in any language; `warm` touches enough of them once, so that both peers write to pages of the second kind.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE = Path(__file__).parent.parent / ".cache" / "bench"
_SHARED_MEMORY = Path("/dev/shm")
_CHUNK = 1 << 20


def in_memory(bytes_needed: int) -> tuple[Path, str]:
    """A place on tmpfs with so much room, or else on disk; and what to call it."""
    if _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free >= bytes_needed:
        return _SHARED_MEMORY, "tmpfs"
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE, "disk: /dev/shm is too small"


def on_disk() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE


@contextmanager
def work_dir(place: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def warm(place: Path, byte_count: int) -> None:
    chunk = bytes(_CHUNK)
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(byte_count // _CHUNK):
            file.write(chunk)
