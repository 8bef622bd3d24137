"""The brokers that are measured: Tidelog with the settings of a row, and the C peer if there is one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.reference_broker import NoReferenceError, ReferenceBroker, compiled
from bench.work_dirs import CACHE, work_dir
from tidelog.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.trials import Peer, Trial

NO_FSYNC = {"tidelog.fsync.before.ack": "false"}
"""The C peer does not sync either."""

_SETTINGS = {
    "log.segment.delete.delay.ms": "0",  # the pages of one trial serve the next
    "auto.create.topics.enable": "false",
}


@contextmanager
def tidelog(place: Path, settings: dict[str, str]) -> Iterator[BrokerProcess]:
    """A broker on an empty directory in `place`."""
    with work_dir(place) as path, BrokerProcess(path / "data", {**_SETTINGS, **settings}) as broker:
        yield broker


class CPeers:
    """Starts C brokers, or says why there are none."""

    def __init__(self) -> None:
        self.missing = ""
        try:
            self._program = compiled(CACHE)
        except NoReferenceError as error:
            self.missing = str(error)

    def contestant(self, place: Path, run: Callable[[Peer], Trial]) -> Sequence[Callable[[], Trial]]:
        """`run` on a new C broker with its log in `place`; nothing if there is no C peer."""

        def run_on_new() -> Trial:
            with work_dir(place) as path, ReferenceBroker(self._program, path / "log") as broker:
                return run(broker)

        return () if self.missing else (run_on_new,)
