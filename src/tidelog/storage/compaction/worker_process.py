"""The broker's end of a cleaning process: started for one log, ended when that is done. Blocking: for a thread."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tidelog.storage.compaction.job import Cleaned, CleaningJob, Mapped

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDS_WITHIN_S = 5.0


class CleaningFailed(Exception):  # noqa: N818 - named for what happened
    """It may go well another time: the disk was full, or the process was ended."""


class LogDamaged(Exception):  # noqa: N818 - named for what was found
    """It will never go well: the log holds what cannot be read."""


class WorkerProcess:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.storage.compaction.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt from the terminal is the broker's to handle
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def map_dirty(self, job: CleaningJob) -> Mapped:
        return Mapped(*self._ask({"map": job.to_json()}))

    def clean(self, base_offsets: Sequence[int]) -> Cleaned | None:
        answer = self._ask({"clean": list(base_offsets)})
        return None if answer is None else Cleaned(*answer)

    def kill(self) -> None:
        """From any thread: whoever waits for an answer gets CleaningFailed."""
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(_ENDS_WITHIN_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or b"null")
        except (OSError, ValueError) as error:
            raise CleaningFailed(f"the cleaning process cannot be reached: {error}") from error
        if answer is None:
            raise CleaningFailed(f"the cleaning process ended ({self._process.wait(_ENDS_WITHIN_S)})")
        if "damage" in answer:
            raise LogDamaged(answer["damage"])
        if "failure" in answer:
            raise CleaningFailed(answer["failure"])
        return answer["ok"]
