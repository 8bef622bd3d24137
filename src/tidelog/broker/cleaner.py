"""The log cleaner: compacts the dirtiest log, then the next, and rests when there is nothing to do.

The event loop chooses and puts segments in place. The work between, which takes minutes and is all Python, is done by
a process per cleaning (`storage/compaction/worker.py`), and a thread waits for its answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

from tidelog.errors import BrokerError
from tidelog.storage.compaction import ticket as tickets
from tidelog.storage.compaction.choosing import dirtiest, is_worth_it
from tidelog.storage.compaction.cleaned_segment import remove_cleaned
from tidelog.storage.compaction.job import Limits
from tidelog.storage.compaction.worker_process import CleaningFailed, LogDamaged, WorkerProcess
from tidelog.storage.content import stem_of
from tidelog.storage.walk import Damage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.partition import Partition
    from tidelog.replication.replicas import Replicas
    from tidelog.storage.compaction.choosing import Cleanable
    from tidelog.storage.compaction.job import Cleaned, CleaningJob, Mapped
    from tidelog.storage.compaction.ticket import CleaningTicket
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 50
THREADS_MAX = 64
BUFFER_BYTES_MIN = 64 << 10
REST_AFTER_FAILURE_S = 60.0
PAUSE_S_MIN = 0.01
"""`log.cleaner.backoff.ms` may be 0."""

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class CleaningWorker(Protocol):
    """What does the work of one cleaning. Every method blocks, `kill` excepted, which ends the others."""

    def map_dirty(self, job: CleaningJob) -> Mapped: ...

    def clean(self, base_offsets: Sequence[int]) -> Cleaned | None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class Cleaner:
    def __init__(
        self,
        replicas: Replicas,
        store: LogStore,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        start_worker: Callable[[], CleaningWorker] = WorkerProcess,
    ) -> None:
        """`config` gives the settings in force, which may change while the broker runs."""
        self._replicas = replicas
        self._store = store
        self._clock = clock
        self._config = config
        self._start_worker = start_worker
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="tidelog-cleaner")
        self._task: asyncio.Task[None] | None = None
        self._cleanings: dict[Log, asyncio.Task[None]] = {}
        self._workers: set[CleaningWorker] = set()
        self._stopping = False
        self._resting: dict[Log, float] = {}
        """Logs whose cleaning failed, and when to try again."""

    def start(self) -> None:
        if self._config().log_cleaner_enable:
            self._task = asyncio.create_task(self._run(), name="cleaner")

    async def stop(self) -> None:
        """Cleanings that are under way are given up: what they have put in place stays."""
        self._stopping = True
        if self._task:
            self._task.cancel()
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*filter(None, (self._task, *self._cleanings.values())), return_exceptions=True)
        self._threads.shutdown()

    # -- choosing -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._begin_cleanings()
            except Exception:
                logger.exception("logs to compact could not be chosen; it is tried again")
            pause_s = max(self._config().log_cleaner_backoff_ms / 1000, PAUSE_S_MIN)
            if self._cleanings:
                await asyncio.wait(self._cleanings.values(), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(pause_s)

    async def _begin_cleanings(self) -> None:
        """As many at once as `log.cleaner.threads` allows."""
        while len(self._cleanings) < min(self._config().log_cleaner_threads, THREADS_MAX):
            partition = await self._next()
            if partition is None:
                break
            name = f"cleaner-{partition.topic_partition}"
            self._cleanings[partition.log] = asyncio.create_task(self._clean(partition), name=name)

    async def _next(self) -> Partition | None:
        """The log that needs it most; None if none does."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        self._resting = {log: until_s for log, until_s in self._resting.items() if until_s > now_s and not log.failure}
        worth_it: list[tuple[Partition, Cleanable]] = []
        for count, partition in enumerate(list(self._replicas)):
            if count % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            if partition.log.config.compacted and self._may_be_cleaned(partition.log):
                found = self._look(partition, now_ms)
                if found is not None and is_worth_it(found, partition.log.config):
                    worth_it.append((partition, found))
        return dirtiest(worth_it)

    def _may_be_cleaned(self, log: Log) -> bool:
        return log.failure is None and log not in self._cleanings and log not in self._resting

    def _look(self, partition: Partition, now_ms: int) -> Cleanable | None:
        log = partition.log
        try:
            tickets.roll_if_overdue(log, now_ms)
            return tickets.look(log, partition.last_stable_offset, now_ms)
        except (BrokerError, OSError, Damage) as error:
            self._rest(log, error)
            return None

    # -- cleaning -----------------------------------------------------------------------------------------------

    async def _clean(self, partition: Partition) -> None:
        log, started_s = partition.log, self._clock.monotonic()
        size_before = log.size_bytes
        worker: CleaningWorker | None = None
        ticket: CleaningTicket | None = None
        try:
            worker = await self._in_thread(self._start_worker)
            self._workers.add(worker)
            if self._stopping:
                return
            ticket = tickets.take(log, partition.last_stable_offset, self._clock.now_ms(), self._limits())
            mapped = await self._in_thread(worker.map_dirty, ticket.job)
            if mapped.keyless:
                logger.warning("%s: %d records have no key and go", partition.topic_partition, mapped.keyless)
            for group in mapped.groups:
                if not await self._clean_group(log, worker, ticket, group):
                    self._changed_meanwhile(log)
                    return
            tickets.settle(log, ticket, mapped.end_offset)
            await self._in_thread(self._store.prepare_checkpoints(self._replicas.high_watermarks()).write)
        except LogDamaged as damage:
            self._give_up(log, damage)
        except (CleaningFailed, BrokerError, OSError, Damage) as error:
            if ticket is None or ticket.holds(log):
                self._rest(log, error)
            else:
                self._changed_meanwhile(log)  # what was to be read may have been deleted
        except Exception:
            logger.exception("compacting %s failed", partition.topic_partition)
            self._resting[log] = math.inf
        else:
            took_s = self._clock.monotonic() - started_s
            logger.info(
                "compacted %s up to offset %d in %.1f s: %d records of %d keys looked at, %d bytes became %d",
                partition.topic_partition,
                mapped.end_offset,
                took_s,
                mapped.records,
                mapped.keys,
                size_before,
                log.size_bytes,
            )
        finally:
            if worker is not None:
                self._workers.discard(worker)
                await self._in_thread(worker.close)
            del self._cleanings[log]

    async def _clean_group(self, log: Log, worker: CleaningWorker, ticket: CleaningTicket, group: list[int]) -> bool:
        """False if the log is no longer what it was when the cleaning began."""
        cleaned = await self._in_thread(worker.clean, group)
        if cleaned is None:
            return log.cleaning is ticket
        fs = log.room.fs
        if log.failure is not None or not log.put_cleaned(ticket, group, cleaned):
            await self._in_thread(remove_cleaned, fs, stem_of(log.directory, group[0]))
            return False
        # The next group may drop a tombstone: first it must be certain that what it deleted does not come back.
        try:
            await self._in_thread(fs.sync_dir, log.directory)
        except OSError as error:
            if log.cleaning is not ticket:
                return False  # it was deleted
            raise LogDamaged(f"its directory cannot be synced: {error}") from error
        return True

    def _changed_meanwhile(self, log: Log) -> None:
        logger.info("%s changed while it was compacted: the rest is left to the next time", log.topic_partition)

    def _give_up(self, log: Log, damage: LogDamaged) -> None:
        self._resting[log] = math.inf
        logger.error(
            "%s cannot be compacted and grows from now on: %s. It is left alone until the next start",
            log.topic_partition,
            damage,
        )

    def _rest(self, log: Log, error: Exception) -> None:
        if self._stopping:
            return
        self._resting[log] = self._clock.monotonic() + REST_AFTER_FAILURE_S
        logger.error(
            "compacting %s failed, it is tried again in %d s: %s", log.topic_partition, REST_AFTER_FAILURE_S, error
        )

    def _limits(self) -> Limits:
        """One cleaning's share of what all of them may use together."""
        config = self._config()
        threads = max(1, config.log_cleaner_threads)
        return Limits(
            map_bytes=int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor) // threads,
            buffer_bytes=max(BUFFER_BYTES_MIN, config.log_cleaner_io_buffer_size // threads // 2),
            bytes_per_s=config.log_cleaner_io_max_bytes_per_second / threads,
        )

    async def _in_thread(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
