"""What the driver does: decides a batch as a whole, and completes what was decided.

    adopt      what the tasks have prepared can no longer time out, nor be touched by them
    decide     one record, in a transaction of the query's decider: from here on the batch counts
    complete   the tasks' transactions are committed
    sweep      what other attempts and earlier runs have left open is aborted

Whoever starts to decide for a query fences all others who do. A crash at any point is repaired by the next commit of
the query: before the decision everything is aborted, after it everything is completed.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import ClientError, TimedOut
from tidelog.errors import BrokerError
from tidelog.pipelines.sink.decisions import (
    REFUSED,
    Verdict,
    decided,
    judge,
    refusal_text,
    taken_over,
    takes_over,
)
from tidelog.pipelines.sink.desk import Desk, Step, TransactionLost, no_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.config import ProducerConfig
    from tidelog.client.transactions.handles import PreparedTransaction
    from tidelog.pipelines.sink.decisions import Proposal

log = logging.getLogger(__name__)

_TRIES_MAX: Final = 3


class Refused(RuntimeError):  # noqa: N818 - named for the fact it reports
    """The batch must not be written. The message says why, and what to do."""


class OutputRepeats(UserWarning):
    """The rows of an earlier query are written again."""


class Decider:
    """Of one query, in one process. Keeps its connections and what it knows from batch to batch."""

    def __init__(
        self, config: ProducerConfig, query: str, *, checkpoint: str | None = None, step: Step = no_step
    ) -> None:
        self._config = config
        self._query = query
        self._checkpoint = checkpoint
        self._step = step
        self._desk: Desk | None = None

    async def close(self) -> None:
        desk, self._desk = self._desk, None
        if desk is not None:
            await desk.close()

    async def commit(self, proposal: Proposal, prepared: Sequence[PreparedTransaction]) -> None:
        """Refused: it is not to be. Anything else that is raised: it may have been, and `abort` finds out."""
        for remaining in reversed(range(_TRIES_MAX)):
            known = self._desk is not None
            desk = await self._seated()
            try:
                await self._commit(desk, proposal, prepared)
            except (ClientError, BrokerError, TransactionLost) as error:
                # Perhaps somebody else decides for the query now, or has aborted what they found. Whether they, or we,
                # have decided anything is in the log: it is looked at anew.
                await self.close()
                if not remaining or isinstance(error, TimedOut) or (isinstance(error, TransactionLost) and not known):
                    raise
                log.info("batch %d of query %s: looking again, after %s", proposal.batch, self._query, error)
            except BaseException:
                await self.close()
                raise
            else:
                return

    async def _commit(self, desk: Desk, proposal: Proposal, prepared: Sequence[PreparedTransaction]) -> None:
        last = desk.last
        verdict = judge(last, proposal)
        if verdict in REFUSED:
            assert last is not None
            await desk.abort(prepared, proposal)
            raise Refused(refusal_text(verdict, last, proposal))
        if verdict is Verdict.COMPLETE:
            assert last is not None
            await desk.abort(prepared, proposal)
            if last.run != proposal.run:
                self._step("take over")
                await desk.store(taken_over(last, proposal.run, await desk.open_runs()))
            await self._complete(desk)
            return
        if last is None:
            await self._warn_of_repetition(desk)
        open_runs = await desk.open_runs() if takes_over(last, proposal.run) else ()
        self._step("adopt")
        winners, adopted = await desk.adopt(prepared, proposal)
        self._step("decide")
        decision = decided(last, proposal, winners, adopted=adopted, checkpoint=self._checkpoint, open_runs=open_runs)
        await desk.store(decision, self._step)
        self._step("complete")
        await self._complete(desk)

    async def _complete(self, desk: Desk) -> None:
        last = desk.last
        assert last is not None
        await asyncio.gather(
            desk.complete(self._step), desk.sweep({last.run, *last.retired}, last.transactional_ids, self._step)
        )
        self._step("completed")

    async def abort(self, proposal: Proposal, prepared: Sequence[PreparedTransaction]) -> None:
        """Of what could not be committed: unless it was, after all, and then it is completed."""
        await self.close()  # whoever raised may have left a decision in doubt: it is settled by beginning anew
        desk = await self._seated()
        try:
            last = desk.last
            if last is not None and last.run == proposal.run and last.batch >= proposal.batch:
                await desk.complete(self._step)
            else:
                await desk.abort(prepared, proposal)
            await desk.sweep({proposal.run}, desk.spared(proposal))
        finally:
            await self.close()

    async def _seated(self) -> Desk:
        if self._desk is None:
            self._step("begin")
            self._desk = await Desk.open(self._config, self._query)
        return self._desk

    async def _warn_of_repetition(self, desk: Desk) -> None:
        if self._checkpoint is None:
            return
        others = await desk.log.by_checkpoint(self._checkpoint, but=self._query)
        if not others:
            return
        told = ", ".join(f"{each.query} (up to batch {each.batch})" for each in others)
        text = (
            f"query {self._query} begins at {self._checkpoint}, where other queries had their checkpoint and committed "
            f"batches: {told}. That checkpoint is gone, and what was written from it is WRITTEN AGAIN by this query. "
            "To avoid that, stop it and restore the checkpoint"
        )
        log.error(text)
        warnings.warn(text, OutputRepeats, stacklevel=2)
        for other in others:
            await desk.end_for_good(other)  # nobody else will do it, and readers would wait for it
