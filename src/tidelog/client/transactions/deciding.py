"""Ends transactions that others have prepared: for whoever decides, in whichever process, as often as it likes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, TypeVar

from tidelog.client.backoff import Deadline
from tidelog.client.cluster import Cluster
from tidelog.client.config import ProducerConfig
from tidelog.client.errors import ProducerFenced
from tidelog.client.transactions.book import Book
from tidelog.client.transactions.coordination import Coordination
from tidelog.client.transactions.line import CoordinatorOf, SharedLine, find_coordinators

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Unpack

    from tidelog.client.producer_settings import ProducerSettings
    from tidelog.client.transactions.handles import PreparedTransaction
    from tidelog.types import BrokerId

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE_MAX: Final = 64


async def end_prepared(
    bootstrap: str | Sequence[str] | ProducerConfig,
    transactions: Iterable[PreparedTransaction],
    *,
    commit: bool,
    **settings: Unpack[ProducerSettings],
) -> None:
    """Commits or aborts all of them. Whoever is not sure that it came to an end calls it again with the same outcome.

    ProducerFenced: one had timed out or was ended otherwise; the others are ended nevertheless. Only transactions of
    producers with `transaction_two_phase_commit_enable` never time out, and those that were adopted.
    """
    async with TransactionDecider(bootstrap, **settings) as decider:
        await decider.end(transactions, commit=commit)


async def adopt_prepared(
    bootstrap: str | Sequence[str] | ProducerConfig,
    transactions: Iterable[PreparedTransaction],
    **settings: Unpack[ProducerSettings],
) -> list[PreparedTransaction]:
    """Takes them over from whoever prepared them, who can do nothing more about them. They do not time out any more:
    only `end_prepared` with what is given back ends them (KIP-939; the broker must have
    `transaction.two.phase.commit.enable`).

    ProducerFenced: one had timed out or was ended before. The others are adopted nevertheless: abort them.
    """
    async with TransactionDecider(bootstrap, **settings) as decider:
        return await decider.adopt(transactions)


class TransactionDecider:
    """Keeps its connections, for whoever decides often. `async with` connects."""

    def __init__(self, bootstrap: str | Sequence[str] | ProducerConfig, **settings: Unpack[ProducerSettings]) -> None:
        config = bootstrap if isinstance(bootstrap, ProducerConfig) else ProducerConfig()
        servers = config.bootstrap_servers if isinstance(bootstrap, ProducerConfig) else bootstrap
        self._config = replace(config, **settings)
        self._cluster = Cluster(servers, self._config)
        self._coordinators: dict[str, BrokerId] = {}

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    async def end(self, transactions: Iterable[PreparedTransaction], *, commit: bool) -> None:
        """As `end_prepared`."""

        async def end(prepared: PreparedTransaction) -> None:
            await self._end(prepared, commit=commit)

        await self._all({each.transactional_id: each for each in transactions if each.written}, end)

    async def adopt(self, transactions: Iterable[PreparedTransaction]) -> list[PreparedTransaction]:
        """As `adopt_prepared`; those that nothing was written in are given back as they are."""
        given = list(transactions)
        written = {each.transactional_id: each for each in given if each.written}
        adopted = await self._all(written, self._adopt)
        return [adopted.get(each.transactional_id, each) for each in given]

    async def fence(self, transactional_ids: Iterable[str]) -> None:
        """Aborts whatever is open under them. Whoever holds one can do nothing more."""
        await self._all({name: name for name in transactional_ids}, self._fence)

    # ---

    async def _end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        book = Book(prepared.transactional_id)
        book.found_prepared(prepared.identity, prepared)
        if commit:
            book.begin_commit()
        else:
            book.begin_abort()
        await self._coordination(book, self._config).end(self._deadline(), committed=commit)

    async def _adopt(self, prepared: PreparedTransaction) -> PreparedTransaction:
        config = replace(
            self._config, transactional_id=prepared.transactional_id, transaction_two_phase_commit_enable=True
        )
        book = Book(prepared.transactional_id)
        coordination = self._coordination(book, config)
        await coordination.initialise(self._deadline(), keep_prepared=True)
        found, identity = book.prepared, book.identity
        assert identity is not None
        if found is None or found.identity != prepared.identity:
            if found is not None:
                book.begin_abort()
                await coordination.end(self._deadline(), committed=False)
            raise ProducerFenced(
                f"what {prepared.transactional_id} had prepared is there no more: the transaction timed out, or was "
                "ended by somebody else"
            )
        return prepared._replace(producer_id=identity.producer_id, epoch=identity.epoch)

    async def _fence(self, transactional_id: str) -> None:
        config = replace(self._config, transactional_id=transactional_id, transaction_two_phase_commit_enable=False)
        await self._coordination(Book(transactional_id), config).initialise(self._deadline())

    async def _all(self, things: dict[str, T], one: Callable[[T], Awaitable[R]]) -> dict[str, R]:
        """`one` for each, some at a time. What goes wrong with one is raised when all others are done."""
        unknown = things.keys() - self._coordinators.keys()
        if unknown:
            found = await find_coordinators(self._cluster, CoordinatorOf.TRANSACTION, sorted(unknown), self._deadline())
            self._coordinators.update(found)
        places = asyncio.Semaphore(_AT_ONCE_MAX)

        async def placed(thing: T) -> R:
            async with places:
                return await one(thing)

        outcomes = await asyncio.gather(*map(placed, things.values()), return_exceptions=True)
        done: dict[str, R] = {}
        for name, outcome in zip(things, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            done[name] = outcome
        return done

    def _coordination(self, book: Book, config: ProducerConfig) -> Coordination:
        line = SharedLine(self._cluster, CoordinatorOf.TRANSACTION, book.transactional_id, self._coordinators)
        return Coordination(self._cluster, config, book, line)

    def _deadline(self) -> Deadline:
        return Deadline(self._config.max_block_ms)
