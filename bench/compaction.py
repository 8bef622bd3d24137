"""`python -m bench.compaction`: ten million updates of a hundred thousand keys shrink to the last values.

The topic is compacted while it is written and read, and the broker is killed in the middle of cleanings. In the end
every key must be there once, with its last value, under the offset it was written at; the memory that cleaning takes
must stay within its bound. What the broker, its cleaner and the clients did meanwhile is printed.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from bench import report, work_dirs
from bench.keyed_updates import KEY_BYTES, VALUE_BYTES, Read, Writer, read
from bench.memory_watch import MemoryWatch, children, own_bytes
from bench.process_facts import cpu_seconds
from bench.results import Row, below
from tidelog.testing import eventually
from tidelog.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event
    from pathlib import Path

_MB = 1e6
_TOPIC = "bench-compaction"
_DEDUPE_BYTES = 8 << 20
_INTERPRETER_BYTES = 48 << 20
"""What a process of ours takes before it does anything, generously."""
_SETTINGS = {
    "log.cleaner.dedupe.buffer.size": str(_DEDUPE_BYTES),
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "auto.create.topics.enable": "false",
}
_CLEANED_WITHIN_S = 600.0
_TRICKLE = 500
_TRICKLE_PAUSE_S = 0.1


class Amounts(NamedTuple):
    updates: int
    keys: int
    segment_bytes: int
    kills: int


FULL = Amounts(updates=10_000_000, keys=100_000, segment_bytes=32 << 20, kills=3)
SHORT = Amounts(updates=1_000_000, keys=10_000, segment_bytes=4 << 20, kills=1)


@dataclass(slots=True)
class Reads:
    """What a reader saw that went through the log again and again."""

    passes: int = 0
    records: int = 0
    faults: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Course:
    """What happened."""

    written_s: float = 0.0
    written: int = 0
    trickled: int = 0
    cleaned_after_s: float = 0.0
    restarts_s: list[float] = field(default_factory=list)
    orphans: int = 0
    cpu_s: float = 0.0
    cpu_wall_s: float = 0.0
    broker_before: int = 0
    broker_peak: int = 0
    worker_peak: int = 0
    workers: int = 0
    reads: Reads = field(default_factory=Reads)
    bytes_most: int = 0
    bytes_left: int = 0
    left: Read | None = None
    wrong: int = 0


class Bench:
    """One broker, killed and started again as the run goes on."""

    def __init__(self, path: Path, amounts: Amounts) -> None:
        self.course = Course()
        self._amounts = amounts
        self._broker = BrokerProcess(path / "data", _SETTINGS, ready_within_s=120.0)
        self._directory = path / "data" / f"{_TOPIC}-0"
        self._pid: int | None = None
        self._cpu_from = 0.0

    def run(self) -> Course:
        self._start()
        try:
            self._create_topic()
            self.course.broker_before = own_bytes(self._broker.pid)
            with MemoryWatch(lambda: self._pid) as watch, reading(self._broker.bootstrap, self.course.reads):
                writer = Writer(self._broker.bootstrap, _TOPIC, self._amounts.keys)
                self._write(writer)
                self._clean_up(writer)
            self.course.broker_peak, self.course.worker_peak = watch.broker_peak, watch.worker_peak
            self.course.workers = len(watch.workers_seen)
            self._judge(writer)
        finally:
            self._end_count()
            self._pid = None
            self._broker.close(check=False)
        return self.course

    # --- the acts ---

    def _write(self, writer: Writer) -> None:
        """All updates as fast as they go, with the broker killed whenever it is seen to clean at certain points."""
        amounts = self._amounts
        points = [amounts.updates * number // (amounts.kills + 1) for number in range(1, amounts.kills + 1)]
        killing: threading.Thread | None = None

        def kill_when_due() -> None:
            nonlocal killing
            self._log_bytes()
            if points and writer.written >= points[0] and (killing is None or not killing.is_alive()):
                points.pop(0)
                killing = threading.Thread(target=self._kill_while_cleaning, name="killer")
                killing.start()

        began = time.perf_counter()
        writer.write(amounts.updates, kill_when_due)
        if killing is not None:
            killing.join()
        writer.flush()
        self.course.written_s = time.perf_counter() - began
        self.course.written = writer.written

    def _kill_while_cleaning(self) -> None:
        cleaning = lambda: any(self._directory.glob("*.cleaned"))  # noqa: E731 -- said where it is used
        eventually(cleaning, "the cleaner to be at work", within_s=_CLEANED_WITHIN_S, every_s=0.002)
        workers = children(self._broker.pid)
        self._end_count()
        self._pid = None
        self._broker.kill()
        try:
            eventually(lambda: not any(map(own_bytes, workers)), "workers to end with their broker", within_s=10.0)
        except TimeoutError:
            self.course.orphans += 1
        began = time.perf_counter()
        self._start()
        self.course.restarts_s.append(time.perf_counter() - began)

    def _clean_up(self, writer: Writer) -> None:
        """A trickle of updates goes on until the log is clean but for them; then the last ones are cleaned too."""
        began = time.perf_counter()
        self._alter({"min.cleanable.dirty.ratio": "0"})
        pause = threading.Event()
        bound = 2 * self._amounts.keys * (VALUE_BYTES + 50) + 2 * self._amounts.segment_bytes
        while self._log_bytes() > bound:
            writer.write(_TRICKLE)
            writer.flush()
            pause.wait(_TRICKLE_PAUSE_S)
            if time.perf_counter() > began + _CLEANED_WITHIN_S:
                raise TimeoutError(f"the log still has {self._log_bytes():,} bytes after {_CLEANED_WITHIN_S:g} s")
        self.course.trickled = writer.written - self.course.written
        # The segment that is written to is never cleaned. One more update closes it.
        self._alter({"segment.ms": "1"})
        pause.wait(0.1)
        writer.write(1)
        writer.flush()
        eventually(self._is_clean, "the rest to be cleaned", within_s=_CLEANED_WITHIN_S, every_s=0.5)
        self.course.cleaned_after_s = time.perf_counter() - began

    def _is_clean(self) -> bool:
        """A log of nothing but last values is hardly larger than they are."""
        return self._log_bytes() < self._amounts.keys * (VALUE_BYTES + 50) + 4096

    def _judge(self, writer: Writer) -> None:
        course = self.course
        course.bytes_left = self._log_bytes()
        course.left = read(self._broker.bootstrap, _TOPIC, with_offsets=True)
        for key, number in enumerate(writer.last):
            name = b"key-%09d" % key
            # Update number n is record n of the log, for nothing was written twice: it must still be there.
            if course.left.newest.get(name) != number or course.left.offsets[name][-1] != number:
                course.wrong += 1

    # --- the broker ---

    def _start(self) -> None:
        self._broker.start()
        self._pid = self._broker.pid
        self._cpu_from, self._wall_from = 0.0, time.perf_counter()

    def _end_count(self) -> None:
        if self._pid is not None:
            self.course.cpu_s += cpu_seconds(self._pid)
            self.course.cpu_wall_s += time.perf_counter() - self._wall_from

    def _create_topic(self) -> None:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(self._amounts.segment_bytes),
            "min.cleanable.dirty.ratio": "0.3",
            "min.compaction.lag.ms": "0",
        }
        wanted = NewTopic(_TOPIC, num_partitions=1, replication_factor=1, config=config)
        admin = self._admin()  # held: one that is let go answers nothing any more
        admin.create_topics([wanted])[_TOPIC].result(60)

    def _alter(self, config: dict[str, str]) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=changes)
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(60)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 2})

    def _log_bytes(self) -> int:
        """Of the segments that are in the log now."""
        total = 0
        for path in self._directory.glob("*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue  # replaced just now
        self.course.bytes_most = max(self.course.bytes_most, total)
        return total


class reading:  # noqa: N801 -- used as a statement
    """A process reads the log from its start again and again, as long as the block lasts."""

    def __init__(self, bootstrap: str, into: Reads) -> None:
        self._into = into
        spawn = multiprocessing.get_context("spawn")
        self._over = spawn.Event()
        self._results, sending = spawn.Pipe(duplex=False)
        self._process = spawn.Process(target=_read_on, args=(bootstrap, self._over, sending), daemon=True)

    def __enter__(self) -> None:
        self._process.start()

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._results.poll(_CLEANED_WITHIN_S):
            seen: Reads = self._results.recv()
            self._into.passes, self._into.records = seen.passes, seen.records
            self._into.faults, self._into.seconds = seen.faults, seen.seconds
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()


def _read_on(bootstrap: str, over: Event, results: Connection) -> None:
    seen = Reads()
    while not over.is_set():
        one = read(bootstrap, _TOPIC)
        seen.passes += 1
        seen.records += one.records
        seen.faults += one.faults
        seen.seconds += one.seconds
        over.wait(0.05)
    results.send(seen)


def rows(amounts: Amounts) -> Iterator[Row]:
    with work_dirs.work_dir(work_dirs.on_disk()) as path:
        course = Bench(path, amounts).run()
    assert course.left is not None
    total = course.written + course.trickled + 1
    name = f"{amounts.updates:,} updates of {amounts.keys:,} keys"
    yield Row(
        f"{name}: written",
        course.written / course.written_s,
        "/s",
        note=f"{course.written_s:.0f} s, while the log was cleaned and read and the broker was killed; "
        f"then {course.trickled:,} more in a trickle",
    )
    yield Row(f"{name}: wrong last values", course.wrong, "", below(1), note=f"of {amounts.keys:,} keys")
    yield Row(
        f"{name}: records left",
        course.left.records,
        "",
        below(amounts.keys + 2),
        note=f"of {total:,}, each under its offset",
    )
    yield Row(
        f"{name}: size of the log",
        course.bytes_left / _MB,
        "MB",
        below(1.2 * amounts.keys * (VALUE_BYTES + 50) / _MB),
        note=f"of {total * (VALUE_BYTES + KEY_BYTES) / _MB:,.0f} MB of keys and values; "
        f"at most {course.bytes_most / _MB:,.0f} MB at a time",
    )
    yield Row(f"{name}: clean after the last of them", course.cleaned_after_s, "s", note="with the trickle going on")
    yield from _reader_and_kill_rows(name, amounts, course)
    yield from _memory_rows(name, course)


def _reader_and_kill_rows(name: str, amounts: Amounts, course: Course) -> Iterator[Row]:
    reads = course.reads
    yield Row(
        f"{name}: faults seen by a reader",
        reads.faults + (reads.passes == 0),
        "",
        below(1),
        note=f"{reads.passes} passes from the start, {reads.records / max(reads.seconds, 0.001):,.0f} records/s",
    )
    yield Row(
        f"{name}: killed while cleaning",
        amounts.kills - len(course.restarts_s) + course.orphans,
        "",
        below(1),
        note=f"kills that failed; {len(course.restarts_s)} succeeded, ready again within "
        f"{max(course.restarts_s, default=0.0):.1f} s; {course.orphans} left a process behind",
    )
    yield Row(
        f"{name}: broker's processor",
        course.cpu_s / course.cpu_wall_s * 100,
        "%",
        note="of one core, without the cleaner's own process",
    )


def _memory_rows(name: str, course: Course) -> Iterator[Row]:
    yield Row(
        f"{name}: cleaner's memory",
        course.worker_peak / _MB,
        "MB",
        below((_DEDUPE_BYTES + _INTERPRETER_BYTES) / _MB),
        note=f"at most, of any of {course.workers} processes; {_DEDUPE_BYTES / _MB:.0f} MB of it is for keys",
    )
    yield Row(
        f"{name}: broker's memory",
        course.broker_peak / _MB,
        "MB",
        below(200),
        note=f"at most, without mapped files; {course.broker_before / _MB:.0f} MB at the start",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser(
        "bench.compaction", "Measure the log cleaner.", short="a tenth of the updates and of the keys"
    )
    options = parser.parse_args(arguments)
    began = time.monotonic()
    measured = list(rows(SHORT if options.short else FULL))
    report.report(measured, f"compaction; {time.monotonic() - began:.0f} s", options.json)
    return report.exit_code(measured)


if __name__ == "__main__":
    sys.exit(main())
