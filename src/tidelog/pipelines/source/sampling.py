"""How many bytes an offset takes where reading goes on: a small piece is fetched, and its batches are measured."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import ClientError
from tidelog.errors import BrokerError
from tidelog.pipelines.source.errors import SourceError
from tidelog.pipelines.source.fetching import Gone, RangeFetcher
from tidelog.records.record import iter_batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ConsumerConfig
    from tidelog.pipelines.source.splits import OffsetRange
    from tidelog.records.header import BatchHeader
    from tidelog.types import TopicId, TopicPartition

_SAMPLE_BYTES: Final = 64 << 10
_WITHIN_MS: Final = 2000
_AT_ONCE_MAX: Final = 16


async def bytes_per_offset(
    cluster: Cluster,
    config: ConsumerConfig,
    ranges: Sequence[OffsetRange],
    ids: Mapping[TopicPartition, TopicId],
) -> dict[TopicPartition, float]:
    """As stored, so compressed where it is. Partitions that cannot be measured now are left out."""
    few = asyncio.Semaphore(_AT_ONCE_MAX)
    small = replace(config, max_partition_fetch_bytes=_SAMPLE_BYTES)

    async def measure(piece: OffsetRange) -> tuple[TopicPartition, float] | None:
        async with few:
            try:
                fetcher = RangeFetcher(cluster, small, piece.partition, ids[piece.partition], _WITHIN_MS)
                answer = await fetcher.fetch(piece.start, piece.end)
            except (Gone, SourceError, ClientError, BrokerError):
                return None  # the task that reads it will tell
            headers = (
                []
                if answer is None or not answer.records
                else [each.header for each in iter_batches(memoryview(answer.records))]  # type: ignore[arg-type]
            )
            if not headers:
                return None
            return piece.partition, density(headers)

    measured = await asyncio.gather(*(measure(piece) for piece in ranges))
    return dict(each for each in measured if each is not None)


def density(headers: Sequence[BatchHeader]) -> float:
    """Bytes per offset of some batches that follow each other, at least one.

    Offsets count from the first batch's own beginning, though reading may go on in its middle: brokers send whole
    batches, and the bytes of a whole one over the few offsets at its end would make records look enormous.
    """
    offsets = headers[-1].next_offset - headers[0].base_offset
    return sum(header.size for header in headers) / max(offsets, 1)
