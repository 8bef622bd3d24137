"""Group commit: one fsync makes safe everything that arrived before it began.

Appends ask for a sync of their partition. Partitions queue; each of a few threads syncs one partition at a time; what
is appended to a partition while its sync runs is covered by its next one. So the busier the disk, the more records
share an fsync, and an idle broker pays one fsync per request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tidelog.replication.partition import Partition
    from tidelog.storage.flush import FlushTicket

logger = logging.getLogger(__name__)


class GroupCommit:
    def __init__(self, executor: Executor, threads: int) -> None:
        self._executor = executor
        self._slots = threads
        self._queue: deque[Partition] = deque()
        self._queued: set[Partition] = set()
        """In the queue, or being synced with more to do afterwards."""
        self._syncing: set[Partition] = set()
        self._start_scheduled = False
        self._loop = asyncio.get_running_loop()

    def request(self, partition: Partition) -> None:
        """Has everything that `partition` holds now made durable, soon."""
        if partition in self._queued:
            return
        self._queued.add(partition)
        if partition in self._syncing:
            return  # queued again when the running sync ends
        self._queue.append(partition)
        if not self._start_scheduled and self._slots:
            # Not at once: requests that were read in the same turn of the loop share the fsync.
            self._start_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._start_scheduled = False
        while self._slots and self._queue:
            partition = self._queue.popleft()
            self._queued.discard(partition)
            try:
                ticket = partition.log.begin_flush()
            except BrokerError as error:
                partition.sync_failed(error)
                continue
            if ticket is None:
                partition.synced(partition.mark())
                continue
            self._slots -= 1
            self._syncing.add(partition)
            mark = partition.mark()
            future = self._loop.run_in_executor(self._executor, ticket.sync)
            future.add_done_callback(partial(self._ended, partition, ticket, mark))

    def _ended(self, partition: Partition, ticket: FlushTicket, mark: int, _done: asyncio.Future[None]) -> None:
        self._slots += 1
        self._syncing.discard(partition)
        try:
            partition.log.finish_flush(ticket)
        except BrokerError as error:
            logger.error("%s: %s", partition.topic_partition, error)
            partition.sync_failed(error)
        else:
            if ticket.synced:
                partition.synced(mark)
        if partition in self._queued:
            self._queue.append(partition)
        self._start()
