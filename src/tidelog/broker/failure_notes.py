"""Tells the controller that logs of this broker have failed, so that others lead what it led.

By a note in the coordination store, which waits there for whoever is the controller: see `controller/log_failures.py`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import ZnodeError

if TYPE_CHECKING:
    from tidelog.types import TopicPartition
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class FailureNotes:
    def __init__(self, znodes: ZnodeStore, broker_id: int) -> None:
        self._znodes = znodes
        self._data = nodes.encode_log_dir_event(broker_id)
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="failure notes")

    def failed(self, _topic_partition: TopicPartition) -> None:
        """One note is enough for all that fail before it is written."""
        if not self._task.done():
            self._news.set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._znodes.create(paths.LOG_DIR_EVENT_PREFIX, self._data, sequential=True, make_parents=True)
            except ZnodeError as error:
                logger.warning("the controller is told of failed logs in %g s: %s", RETRY_S, error)
                self._news.set()
                await asyncio.sleep(RETRY_S)
            except Exception:
                logger.exception("the controller could not be told of failed logs")
