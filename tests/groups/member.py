"""One member of a consumer group as a process of its own: it reads, commits what it has read, and tells all it sees.

    python member.py --client confluent|kafka-python|aiokafka|tidelog --bootstrap B --group G --topic T ...

Every line it prints is one JSON object:

    {"event": "owns", "why": "assigned"|"revoked"|"lost", "partitions": [["t", 0], ...]}   all that it owns from now on
    {"event": "record", "at": ["t", 0, 12], "value": "..."}
    {"event": "committed", "upto": [["t", 0, 13], ...]}                the broker has taken these positions
    {"event": "refused", "error": "...", "upto": [["t", 0, 13], ...]}  it has not
    {"event": "failed", "error": "..."}                                the client gave up; the process ends
    {"event": "closed"}                                                it left cleanly, after SIGTERM

Java's driver has a command that takes the same options and prints the same lines.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Partition = tuple[str, int]
Position = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Options:
    client: str
    bootstrap: str
    group: str
    topics: list[str]
    pattern: str | None
    protocol: str
    assignor: str | None
    instance: str | None
    reset: str
    commit: str
    session_ms: int
    heartbeat_ms: int
    metadata_ms: int


@dataclass(slots=True)
class Reports:
    """What the process prints, and the partitions it owns by what it was told so far."""

    owned: set[Partition] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def gained(self, partitions: Iterable[Partition]) -> None:
        self.owned |= set(partitions)
        self._say(event="owns", why="assigned", partitions=sorted(self.owned))

    def gave_up(self, partitions: Iterable[Partition], why: str = "revoked") -> None:
        self.owned -= set(partitions)
        self._say(event="owns", why=why, partitions=sorted(self.owned))

    def record(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self._say(event="record", at=[topic, partition, offset], value=None if value is None else value.decode())

    def committed(self, upto: Iterable[Position]) -> None:
        self._say(event="committed", upto=sorted(upto))

    def refused(self, error: str, upto: Iterable[Position]) -> None:
        self._say(event="refused", error=error, upto=sorted(upto))

    def failed(self, error: str) -> None:
        self._say(event="failed", error=error)

    def closed(self) -> None:
        self._say(event="closed")

    def _say(self, **line: Any) -> None:
        # One write for a whole line: who is killed in the middle leaves no half of one.
        with self.lock:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def parse(arguments: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", required=True, choices=("confluent", "kafka-python", "aiokafka", "tidelog"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", action="append", default=[], dest="topics")
    parser.add_argument("--pattern")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--assignor")
    parser.add_argument("--instance")
    parser.add_argument("--reset", choices=("earliest", "latest", "none"), default="earliest")
    parser.add_argument("--commit", choices=("sync", "auto", "never"), default="sync")
    parser.add_argument("--session-ms", type=int, default=6000)
    parser.add_argument("--heartbeat-ms", type=int, default=300)
    parser.add_argument("--metadata-ms", type=int, default=300_000)
    return Options(**vars(parser.parse_args(arguments)))


def main() -> None:
    options = parse()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    reports = Reports()
    if options.client == "confluent":
        from confluent_member import run
    elif options.client == "kafka-python":
        from kafka_python_member import run
    elif options.client == "aiokafka":
        from aiokafka_member import run
    else:
        from tidelog_member import run
    try:
        run(options, reports, stop)
    except Exception as error:
        reports.failed(f"{type(error).__name__}: {error}")
        raise
    reports.closed()


if __name__ == "__main__":
    main()
