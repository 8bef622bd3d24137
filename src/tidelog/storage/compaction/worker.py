"""`python -m tidelog.storage.compaction.worker`: cleans one log, told what to do by the broker that started it.

A process and not a thread: walking over records is Python's work, and would keep the event loop from the interpreter
for milliseconds at a time. It speaks JSON, one request and one reply per line, on its standard input and output:

    {"map": {...CleaningJob}}       ->  {"ok": [...Mapped]}
    {"clean": [base offsets]}       ->  {"ok": [...Cleaned]} or {"ok": null}
    a failure of either             ->  {"damage": why} or {"failure": why}

When its input ends, so does it, whatever it is doing: the broker is gone, and the next one owns these files.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from tidelog.clock import SystemClock
from tidelog.errors import BrokerError
from tidelog.storage.compaction.cleaned_segment import SegmentTooLarge, remove_cleaned
from tidelog.storage.compaction.cleaning import Cleaning
from tidelog.storage.compaction.job import CleaningJob
from tidelog.storage.compaction.throttle import Throttle
from tidelog.storage.content import stem_of
from tidelog.storage.fs import RealFilesystem
from tidelog.storage.walk import Damage

NICENESS = 10
"""Requests come first."""


class Worker:
    def __init__(self) -> None:
        self._fs = RealFilesystem()
        self._job: CleaningJob | None = None
        self._cleaning: Cleaning | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._map(request["map"]) if "map" in request else self._clean(request["clean"])}
        except (Damage, BrokerError, SegmentTooLarge) as error:
            return {"damage": str(error)}
        except OSError as error:
            return {"failure": str(error)}

    def _map(self, fields: dict[str, Any]) -> tuple[Any, ...]:
        job = self._job = CleaningJob.from_json(fields)
        self._cleaning = Cleaning(self._fs, job, Throttle(job.limits.bytes_per_s, SystemClock()))
        return self._cleaning.map_dirty()

    def _clean(self, base_offsets: list[int]) -> tuple[Any, ...] | None:
        assert self._job is not None, "the dirty part is mapped first"
        assert self._cleaning is not None
        try:
            return self._cleaning.clean(base_offsets)
        except BaseException:
            remove_cleaned(self._fs, stem_of(self._job.directory, base_offsets[0]))
            raise


def main() -> None:
    os.nice(NICENESS)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    worker = Worker()
    while True:
        sys.stdout.write(json.dumps(worker.answer(json.loads(requests.get()))) + "\n")
        sys.stdout.flush()


def _listen(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
