"""The topic in which decisions are kept: one record per query counts, the last one.

It is compacted. Whoever looks for a query's last decision begins near the end, where that of a running query is, and
goes back further as long as it is not found.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from tidelog.client.admin import Admin
from tidelog.client.config import ClientConfig, ProducerConfig
from tidelog.client.consumer import Consumer
from tidelog.client.descriptions import NewTopic
from tidelog.client.errors import ClientError, TimedOut
from tidelog.client.offsets import OffsetSpec
from tidelog.client.partitioner import partition_for_key
from tidelog.errors import BrokerError, ErrorCode
from tidelog.pipelines.own_topics import DECISIONS
from tidelog.pipelines.sink.client_settings import as_client, as_consumer
from tidelog.pipelines.sink.decisions import Decision, UnreadableDecision
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

TOPIC: Final = DECISIONS
PARTITIONS: Final = 16
RECORD_BYTES_MAX: Final = 8 << 20
_REPLICAS_MAX: Final = 3
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(RECORD_BYTES_MAX),
    # Only whole segments are compacted: small ones keep what has to be read through small.
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_LOOK_BACK_FIRST: Final = 64
_LOOK_BACK_GROWTH: Final = 16
_STABLE_WITHIN_S: Final = 60.0
"""For transactions of other queries, which are open for some milliseconds, or until they time out after a crash."""
_PAUSE_S: Final = 0.005


class UnstableLog(ClientError):  # noqa: N818 - named for the fact it reports
    """What was decided last cannot be told as long as a transaction is open."""


class DecisionLog:
    """`async with` connects."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self.admin = Admin(as_client(config, ClientConfig))
        self._consumer: Consumer | None = None
        self._partitions = 0

    async def __aenter__(self) -> Self:
        await self.admin.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            if self._consumer is not None:
                await self._consumer.close()
        finally:
            await self.admin.close()

    async def ensure(self) -> None:
        """Creates the topic if it is not there."""
        if await self._look_up():
            return
        brokers = len((await self.admin.describe_cluster()).brokers)
        replicas = min(_REPLICAS_MAX, brokers)
        configs = {**_CONFIGS, "min.insync.replicas": str(min(2, replicas))}
        outcome = (await self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, configs=configs)]))[TOPIC]
        if isinstance(outcome, BrokerError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome
        while not await self._look_up():  # noqa: ASYNC110 - brokers tell nobody
            await asyncio.sleep(_PAUSE_S)

    def partition(self, query: str) -> int:
        """Where the query's decisions are; `ensure` or `last` came before."""
        return partition_for_key(query.encode(), self._partitions)

    async def last(self, query: str) -> Decision | None:
        """What was decided last when this was called, or after."""
        if not await self._look_up():
            return None
        partition = TopicPartition(TOPIC, self.partition(query))
        start, end = await self._bounds(partition)
        back, stop = _LOOK_BACK_FIRST, end
        while stop > start:
            begin = max(start, end - back)
            found = await self._between(partition, begin, stop)
            if query.encode() in found:
                return _read(query, found[query.encode()])
            back, stop = back * _LOOK_BACK_GROWTH, begin
        return None

    async def by_checkpoint(self, checkpoint: str, *, but: str) -> list[Decision]:
        """The last decisions of other queries that keep, or kept, their checkpoint there."""
        decisions: list[Decision | None] = []
        for number in range(self._partitions):
            partition = TopicPartition(TOPIC, number)
            found = await self._between(partition, *await self._bounds(partition))
            for key, value in found.items():
                with suppress(UnreadableDecision):  # whoever it concerns will say so
                    decisions.append(_read(key.decode(errors="replace"), value))
        return [each for each in decisions if each and each.checkpoint == checkpoint and each.query != but]

    # ---

    async def _look_up(self) -> bool:
        if not self._partitions:
            try:
                self._partitions = len((await self.admin.describe_topic(TOPIC)).partitions)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return self._partitions > 0

    async def _bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """First offset and end. Nothing before the end is open any more."""
        end = await self._offset(partition, OffsetSpec.latest())
        try:
            async with asyncio.timeout(_STABLE_WITHIN_S):
                while await self._offset(partition, OffsetSpec.latest(), committed_only=True) < end:  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise UnstableLog(
                f"what was decided last cannot be read: {partition} has a transaction that has been open for more than "
                f"{_STABLE_WITHIN_S:.0f} s"
            ) from None
        return await self._offset(partition, OffsetSpec.earliest()), end

    async def _offset(self, partition: TopicPartition, spec: OffsetSpec, *, committed_only: bool = False) -> int:
        found = (await self.admin.list_offsets({partition: spec}, committed_only=committed_only))[partition]
        return 0 if found is None else int(found.offset)

    async def _between(self, partition: TopicPartition, begin: int, stop: int) -> dict[bytes, bytes | None]:
        """The last committed value of each key, of offsets from `begin` to before `stop`."""
        found: dict[bytes, bytes | None] = {}
        if begin >= stop:
            return found
        if self._consumer is None:
            self._consumer = Consumer(as_consumer(self._config))
            await self._consumer.start()
        consumer = self._consumer
        await consumer.assign({partition: begin})
        patience_s = self._config.default_api_timeout_ms / 1000
        try:
            async with asyncio.timeout(patience_s):
                while consumer.positions().get(partition, begin) < stop:
                    for record in await consumer.poll(timeout_s=1.0, max_records=10_000):
                        if record.offset < stop and record.key is not None:
                            found[record.key] = record.value
        except TimeoutError:
            raise TimedOut(f"{partition} could not be read up to offset {stop} within {patience_s:.0f} s") from None
        finally:
            await consumer.assign({})
        return found


def _read(query: str, value: bytes | None) -> Decision | None:
    if value is None:
        return None  # it was deleted on purpose
    try:
        return Decision.from_json(value)
    except UnreadableDecision as error:
        raise UnreadableDecision(
            f"the last decision of query {query} in topic {TOPIC} cannot be read ({error}): the sink does not go on, "
            "as it could repeat or lose rows"
        ) from error
