"""What the chaos is made in: a load that goes on whatever breaks, and a query's drivers, one life after the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from confluent_kafka import KafkaError, Message

PROGRAM: Final = Path(__file__).parent / "chaos_query.py"
ROWS: Final = "rows"
COPIES: Final = "copies"
COUNTS: Final = "counts"
"""How many rows of each key there were, after each batch in which there were some."""
ENDED_WITHIN_S: Final = 900.0
"""For hanging, not for slowness."""
BURST: Final = 10
BURST_EVERY_S: Final = 0.05


class Load:
    """Numbered rows into a topic, in a thread, until it is told to stop. All that it counts are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.rows = 0
        self._failed: list[KafkaError] = []
        self._enough = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "delivery.timeout.ms": 600_000}
        )
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        self._thread.join()

    def finish(self) -> int:
        """Stops; gives how many rows there are, numbered from 0."""
        self._enough.set()
        self._thread.join()
        assert self._producer.flush(ENDED_WITHIN_S) == 0, "rows were not acknowledged"
        assert not self._failed, self._failed[0]
        return self.rows

    def _run(self) -> None:
        while not self._enough.wait(BURST_EVERY_S):
            for number in range(self.rows, self.rows + BURST):
                self._producer.produce(ROWS, row(number), key(number), on_delivery=self._delivered)
            self.rows += BURST
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)


def row(number: int) -> bytes:
    return b"row %d" % number


def key(number: int) -> bytes:
    return b"%d" % (number % 97)


class Drivers:
    """Starts drivers of the two queries, at most one at a time."""

    def __init__(self, directory: Path, master: str, conf: Mapping[str, str], bootstrap: str) -> None:
        self._log = directory / "driver.log"
        self._command = [
            *(sys.executable, str(PROGRAM), "--master", master, "--conf", json.dumps(dict(conf))),
            *("--bootstrap", bootstrap, "--source", ROWS, "--copies", COPIES, "--counts", COUNTS),
            *("--checkpoints", str(directory / "checkpoints")),
        ]
        self._process: subprocess.Popen[str] | None = None

    def start(self, *, to_the_end: bool = False) -> None:
        assert self._process is None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *(["--to-the-end"] if to_the_end else [])],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def read_lines(self, count: int) -> int:
        """Waits until it has printed so many more lines; fewer mean that it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        for number in range(count):
            if not self._process.stdout.readline():
                return number
        return count

    def let_be(self, at_most_s: float) -> bool:
        """Gives it some time; true if it ended meanwhile, by itself."""
        assert self._process is not None
        try:
            self._process.wait(at_most_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """All at once: Python, Java, and the processes that tasks run in if they are the driver's own."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def wait(self) -> None:
        """Until it ends, as it has nothing more to do."""
        process, self._process = self._process, None
        assert process is not None
        try:
            process.communicate(timeout=ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert process.returncode == 0, self.log_tail()

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
