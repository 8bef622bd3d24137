"""Java's archive of classes that were loaded once before, which makes Spark start in half the time.

The first session that finds no archive has its Java write one when it ends, in the background, under a name of its own.
The next session that starts finds it complete and gives it its final name. Nothing here ever keeps a session from
starting: where something is amiss there is just no archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.clock import Clock
    from tidelog.pipelines.session.java import Java

_WRITTEN_WITHIN_S: Final = 7 * 24 * 3600
"""A session may run for long before it ends; what is still not complete then never will be."""

_OWN_ARCHIVE: Final = Path("lib/server/classes.jsa")
_SYSTEM_CLOCK: Final = SystemClock()


def archive_options(
    cache: Path, java: Java, jars: Path, collector: Sequence[str], clock: Clock = _SYSTEM_CLOCK
) -> list[str]:
    """What to tell Java: to use the archive, or to write one. Archives fit one Java, one Spark and one collector.

    They build on the archive of Java's own classes, which small runtimes lack.
    """
    if not (java.home / _OWN_ARCHIVE).exists():
        return []
    try:
        cache.mkdir(parents=True, exist_ok=True)
        archive = cache / f"classes-{_key(java, jars, collector)}.jsa"
        _publish(archive, clock)
        if archive.exists():
            return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}"]
    except OSError:
        return []
    if " " in str(archive):  # Spark cuts Java's options at spaces
        return []
    return [f"-XX:ArchiveClassesAtExit={archive.with_suffix(f'.{uuid.uuid4().hex}.part')}"]


def _key(java: Java, jars: Path, collector: Sequence[str]) -> str:
    """Changes whenever Java would refuse the archive: it remembers its own build, and each jar with size and time."""
    hashed = hashlib.sha256(repr((str(java.home), sorted(collector))).encode())
    for path in (java.home / "release", *sorted(jars.glob("*.jar"))):
        status = path.stat()
        hashed.update(repr((path.name, status.st_size, status.st_mtime_ns)).encode())
    return hashed.hexdigest()[:16]


def _publish(archive: Path, clock: Clock) -> None:
    for part in archive.parent.glob(f"{archive.stem}.*.part"):
        with contextlib.suppress(FileNotFoundError):  # another session was quicker
            if is_complete(part) and not archive.exists():
                part.rename(archive)
            elif archive.exists() or clock.now_ms() / 1000 - part.stat().st_mtime > _WRITTEN_WITHIN_S:
                part.unlink()


def is_complete(path: Path) -> bool:
    """Java writes the header, with its magic number, after everything else."""
    with path.open("rb") as file:
        return any(os.read(file.fileno(), 4))
