"""Hears from brokers that logs of theirs have failed, and asks them which.

A broker leaves a note below `/log_dir_event_notification`, as Kafka's do. It says who, not what: the broker is told its
roles again, and its answer, with KAFKA_STORAGE_ERROR for each replica that it cannot use, is all that counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller.dispatch import tell_again
from tidelog.controller.loading import children_if_any
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import MultiError, NodeFormatError, NoNode
from tidelog.znodes.store import Delete

if TYPE_CHECKING:
    from tidelog.controller.reign import Reign
    from tidelog.znodes.store import WatchEvent

logger = logging.getLogger(__name__)


class LogFailures:
    def __init__(self, reign: Reign) -> None:
        self._reign = reign
        self._posted = False

    async def load(self) -> None:
        """Takes up the notes that are there, and watches for more."""
        reign = self._reign
        self._posted = False
        names = await children_if_any(reign.znodes, paths.LOG_DIR_EVENTS, self._on_notes)
        wanted = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in sorted(names)]
        notes = await reign.znodes.get_many(wanted)
        reign.check()
        there = [(path, note[0]) for path, note in zip(wanted, notes, strict=True) if note is not None]
        for broker_id in {self._sender(path, data) for path, data in there}:
            if broker_id in reign.outboxes:
                tell_again(reign.outboxes[broker_id], broker_id, reign.state)
        reign.couriers.wake()
        for path, _data in there:
            await self._remove(path)

    def _on_notes(self, _event: WatchEvent) -> None:
        if not self._posted:
            self._posted = True
            self._reign.post(self.load)

    def _sender(self, path: str, data: bytes) -> int | None:
        try:
            return nodes.decode_log_dir_event(path, data)
        except NodeFormatError as error:
            logger.error("a note of failed logs is ignored: %s", error)
            return None

    async def _remove(self, path: str) -> None:
        """A controller that is gone before the broker has answered leaves it to the next, which asks everybody."""
        try:
            await self._reign.ledger.write([[Delete(path)]])
        except MultiError as error:
            if not isinstance(error.cause, NoNode):
                raise
        self._reign.check()
