"""A driver in a process of its own, which is killed at a given step of its second batch. The first batch repairs what
drivers before have left. Arguments as JSON on the command line.

It prints each step of the second batch, and the batches that it has finished.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from sink_runs import Checkpoint, Driver


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    told = json.loads(sys.argv[1])
    steps = 0
    finished: list[int] = []

    def step(name: str) -> None:
        nonlocal steps
        if not finished:
            return
        say("step", name)
        if steps == told["dies_at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    checkpoint = Checkpoint(Path(told["checkpoint"]))
    driver = Driver(told["bootstrap"], told["topic"], checkpoint, step=step)
    for _ in range(2):
        batch = checkpoint.plan()
        step("write")
        messages = driver.write(batch)
        step("commit")
        driver.commit(batch, messages)
        step("finish")
        checkpoint.finish(batch)
        finished.append(batch)
        say("finished", str(batch))


if __name__ == "__main__":
    main()
