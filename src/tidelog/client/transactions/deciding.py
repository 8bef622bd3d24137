"""Ends transactions that others have prepared: for whoever decides, in whichever process, as often as it likes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.client.backoff import Deadline
from tidelog.client.cluster import Cluster
from tidelog.client.config import ProducerConfig
from tidelog.client.transactions.book import Book
from tidelog.client.transactions.coordination import Coordination

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from tidelog.client.producer_settings import ProducerSettings
    from tidelog.client.transactions.handles import PreparedTransaction

_AT_ONCE_MAX: Final = 16


async def end_prepared(
    bootstrap: str | Sequence[str] | ProducerConfig,
    transactions: Iterable[PreparedTransaction],
    *,
    commit: bool,
    **settings: Unpack[ProducerSettings],
) -> None:
    """Commits or aborts all of them. Whoever is not sure that it came to an end calls it again with the same outcome.

    ProducerFenced: one had timed out or was ended otherwise; the others are ended nevertheless. Only transactions of
    producers with `transaction_two_phase_commit_enable` never time out.
    """
    config = bootstrap if isinstance(bootstrap, ProducerConfig) else ProducerConfig()
    servers = config.bootstrap_servers if isinstance(bootstrap, ProducerConfig) else bootstrap
    config = replace(config, **settings)
    at_once = asyncio.Semaphore(_AT_ONCE_MAX)
    async with Cluster(servers, config) as cluster:

        async def end(prepared: PreparedTransaction) -> None:
            async with at_once:
                await _end(cluster, config, prepared, commit=commit)

        outcomes = await asyncio.gather(*map(end, transactions), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def _end(cluster: Cluster, config: ProducerConfig, prepared: PreparedTransaction, *, commit: bool) -> None:
    if not prepared.written:
        return
    book = Book(prepared.transactional_id)
    book.found_prepared(prepared.identity, prepared)
    coordination = Coordination(cluster, config, book)
    try:
        if commit:
            book.begin_commit()
        else:
            book.begin_abort()
        await coordination.end(Deadline(config.max_block_ms), committed=commit)
    finally:
        await coordination.close()
