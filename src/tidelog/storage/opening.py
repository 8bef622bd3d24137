"""Opening all partitions of the data directories at once, in threads, telling how far it is.

Only plain data comes out: logs are made of it on the thread that owns the store.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.recovery import Known, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.clock import Clock
    from tidelog.config.topic import TopicConfig
    from tidelog.storage.content import Content
    from tidelog.storage.data_dir import DataDir
    from tidelog.storage.fs import Filesystem
    from tidelog.types import TopicPartition

_log = logging.getLogger(__name__)

_CHUNK = 32
_PROGRESS_S = 5.0


class Task(NamedTuple):
    data_dir: DataDir
    topic_partition: TopicPartition
    config: TopicConfig
    known: Known


class Opened(NamedTuple):
    """`content` is None if the partition's files could not be read at all."""

    data_dir: DataDir
    topic_partition: TopicPartition
    config: TopicConfig
    content: Content | None


def plan(data_dirs: Sequence[DataDir], configs: Callable[[str], TopicConfig]) -> list[Task]:
    """Find what there is. The marker of a clean stop is taken away here, before anything is written."""
    tasks: list[Task] = []
    for data_dir in data_dirs:
        checkpoints = data_dir.checkpoints
        clean = checkpoints.take_clean_marker()
        checkpoints.load()
        found = data_dir.find_partitions()
        _log.info("%s: %d partitions after %s stop", data_dir.path, len(found), "a clean" if clean else "an unclean")
        for each in found:
            known = Known(checkpoints.recovery_points.get(each), checkpoints.log_start_offsets.get(each, 0), clean)
            tasks.append(Task(data_dir, each, configs(each.topic), known))
    return tasks


def open_all(fs: Filesystem, clock: Clock, tasks: Sequence[Task], threads: int) -> Iterator[Opened]:
    """In any order. A partition that cannot be read does not keep the others from opening."""
    chunks = [tasks[at : at + _CHUNK] for at in range(0, len(tasks), _CHUNK)]
    started = reported = clock.monotonic()
    done = 0
    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="recovery") as executor:
        for chunk in executor.map(lambda each: [_open(fs, clock, task) for task in each], chunks):
            yield from chunk
            done += len(chunk)
            now = clock.monotonic()
            if now - reported >= _PROGRESS_S:
                reported = now
                _log.info("opened %d of %d partitions in %.1f s", done, len(tasks), now - started)
    _log.info("opened %d partitions in %.2f s", len(tasks), clock.monotonic() - started)


def _open(fs: Filesystem, clock: Clock, task: Task) -> Opened:
    directory = f"{task.data_dir.path}/{task.topic_partition}"
    content: Content | None = None
    try:
        content = Recovery(fs, directory, task.config, task.known, clock.now_ms()).run()
    except OSError:
        _log.exception("%s cannot be opened and stays out of service until the next start", directory)
    return Opened(task.data_dir, task.topic_partition, task.config, content)
