"""The clients that a decider needs, and what it knows: decisions are stored here, and transactions of tasks ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import (
    ClientError,
    NotSupported,
    ProducerFenced,
    ProducerStopped,
    TimedOut,
    TransactionFailed,
)
from tidelog.client.producer import Producer
from tidelog.client.transactions.deciding import TransactionDecider
from tidelog.errors import BrokerError
from tidelog.pipelines.sink.decision_log import RECORD_BYTES_MAX, TOPIC, DecisionLog
from tidelog.pipelines.sink.decisions import decider_id, run_of, transactions_of
from tidelog.pipelines.sink.leftovers import open_transactions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tidelog.client.admin import Admin
    from tidelog.client.config import ProducerConfig
    from tidelog.client.transactions.handles import PreparedTransaction
    from tidelog.pipelines.sink.decisions import Decision, Proposal

log = logging.getLogger(__name__)

Step = Callable[[str], None]
"""Told before each step; what it raises ends the commit there."""

_DECIDER_TIMEOUT_MS: Final = 10_000
"""Of the transaction that holds one record: a driver that dies in it must not keep other queries waiting."""
_FORGOTTEN_AFTER_MS: Final = 3_600_000
_TRIES_MAX: Final = 3


def no_step(_: str) -> None:
    pass


class TransactionLost(RuntimeError):  # noqa: N818 - named for the fact it reports
    """Something that tasks had prepared is gone. Nothing of the batch is visible; Spark has to do it again."""


class Desk:
    """The clients of a decider, and the last decision. As long as its producer is not fenced, nobody else decides."""

    def __init__(
        self,
        query: str,
        log_: DecisionLog,
        producer: Producer,
        transactions: TransactionDecider,
        last: Decision | None,
    ) -> None:
        self._query = query
        self.log = log_
        self._producer = producer
        self._transactions = transactions
        self._admin: Admin = log_.admin
        self.last = last

    @classmethod
    async def open(cls, config: ProducerConfig, query: str) -> Desk:
        opened: list[DecisionLog | Producer | TransactionDecider] = []
        try:
            log_ = DecisionLog(config)
            opened.append(log_)
            await log_.__aenter__()
            await log_.ensure()
            producer: Producer = Producer(
                replace(
                    config,
                    transactional_id=decider_id(query),
                    transaction_timeout_ms=_DECIDER_TIMEOUT_MS,
                    linger_ms=0,
                    max_request_size=RECORD_BYTES_MAX,
                    buffer_memory=max(config.buffer_memory, 2 * RECORD_BYTES_MAX),
                )
            )
            opened.append(producer)
            # First of all it fences whoever else decides for the query: what is read then is the last word.
            await producer.start()
            last = await log_.last(query)
            transactions = TransactionDecider(config)
            opened.append(transactions)
            await transactions.__aenter__()
            return cls(query, log_, producer, transactions, last)
        except BaseException:
            for each in reversed(opened):
                await each.close()
            raise

    async def close(self) -> None:
        await asyncio.gather(self._producer.close(flush=False), self.log.close(), self._transactions.close())

    async def adopt(
        self, prepared: Iterable[PreparedTransaction], proposal: Proposal
    ) -> tuple[list[PreparedTransaction], bool]:
        """Winners as they are to be ended, and whether they are safe from timing out until then."""
        given = [each for each in prepared if each.written]
        try:
            return await self._transactions.adopt(given), True
        except ProducerFenced as error:
            await self.abort(given, proposal)
            raise TransactionLost(_lost(proposal, str(error))) from error
        except (NotSupported, ProducerStopped) as error:
            _warn_once(error)
        # The weaker promise: all are there now.
        described = (await self._admin.describe_transactions(each.transactional_id for each in given)).results()
        for each in given:
            found = described[each.transactional_id]
            if found.state != "Ongoing" or (found.producer_id, found.producer_epoch) != (each.producer_id, each.epoch):
                await self.abort(given, proposal)
                raise TransactionLost(_lost(proposal, f"{each.transactional_id} is {found.state}"))
        return given, False

    async def store(self, decision: Decision, step: Step = no_step) -> None:
        """Writes the decision. TimedOut: nobody knows whether it is."""
        producer = self._producer
        await producer.begin()
        partition = self.log.partition(self._query)
        await producer.send_and_wait(TOPIC, decision.to_json(), key=self._query.encode(), partition=partition)
        step("decided but for the end")
        for remaining in reversed(range(_TRIES_MAX)):
            try:
                await producer.commit()
            except TimedOut:
                if not remaining:
                    raise
            else:
                break
        self.last = decision

    async def complete(self, step: Step = no_step) -> None:
        """Commits all winners; those that are committed already stay so."""
        assert self.last is not None
        await self._end(self.last, step)

    async def _end(self, decision: Decision, step: Step = no_step) -> None:
        async def end(winner: PreparedTransaction) -> None:
            try:
                await self._transactions.end([winner], commit=True)
            except (ProducerFenced, TransactionFailed) as error:
                self._note_ended(decision, error)
            step("one is completed")

        outcomes = await asyncio.gather(*map(end, decision.winners), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _note_ended(self, decision: Decision, error: ClientError) -> None:
        """The coordinator knows of no such transaction any more. One that cannot time out was committed, then."""
        if not decision.adopted:
            log.error(
                "whether all of batch %d of query %s is visible is not known: a transaction of it is ended already, by "
                "its commit or by its timeout (%s)",
                decision.batch,
                decision.query,
                error,
            )

    async def end_for_good(self, decision: Decision) -> None:
        """Of another query, which nobody runs any more."""
        await self._end(decision)
        left = {each for each in await self._open(decision.query) if each not in decision.transactional_ids}
        await self._transactions.fence(left)

    async def abort(self, prepared: Iterable[PreparedTransaction], proposal: Proposal) -> None:
        """But for the winners of a decision that covers the batch, which nobody aborts any more."""
        spared = self.spared(proposal)
        await self._transactions.fence(
            each.transactional_id for each in prepared if each.written and each.transactional_id not in spared
        )

    async def open_runs(self) -> frozenset[str]:
        """Those that have a transaction open now."""
        return frozenset(run for run in (await self._open(self._query)).values())

    async def sweep(self, runs: Collection[str], spared: Collection[str], step: Step = no_step) -> None:
        """Aborts what the runs have left open. What cannot be reached now is left to the next time, or its timeout.

        Also what has been open for longer than any timeout: some driver adopted it, and was never seen again.
        """
        step("sweep")
        try:
            found = await self._open(self._query)
            lost = {name for name, run in found.items() if run in runs and name not in spared}
            if found.keys() - lost - {*spared}:
                old = await self._open(self._query, longer_than_ms=_FORGOTTEN_AFTER_MS)
                lost |= old.keys() - {*spared}
            if lost:
                log.info("aborting %d transactions that attempts and runs before have left open", len(lost))
                await self._transactions.fence(lost)
        except (ClientError, BrokerError) as error:
            log.warning("transactions that others have left open could not be aborted now: %s", error)

    async def _open(self, query: str, *, longer_than_ms: int = -1) -> dict[str, str]:
        """Attempts' transactions of a query that are open, each with its run."""
        names = await open_transactions(self._admin, transactions_of(query), longer_than_ms=longer_than_ms)
        runs = {name: run_of(query, name) for name in names}
        return {name: run for name, run in runs.items() if run is not None}

    def spared(self, proposal: Proposal) -> Collection[str]:
        """A run's transactional ids are used again from batch to batch: winners of earlier ones are completed."""
        last = self.last
        if last is None or (last.run == proposal.run and last.batch < proposal.batch):
            return ()
        return last.transactional_ids


_warned = False


def _warn_once(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        log.warning(
            "the brokers allow no two-phase commits (%s), so that a batch that is decided could still time out before "
            "it is completed: set transaction.two.phase.commit.enable=true on them if they can",
            error,
        )


def _lost(proposal: Proposal, why: str) -> str:
    return (
        f"batch {proposal.batch} of query {proposal.query} is not committed, and nothing of it is visible: {why}. "
        "Spark repeats the batch when the query is started again. If batches take longer than the option "
        "kafka.transaction.timeout.ms allows, make them smaller, or raise it and the brokers' "
        "transaction.max.timeout.ms"
    )
