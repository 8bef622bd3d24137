"""Looks after transactions (KIP-664): which there are, what each is in, which hang, and how one is got rid of.

    async with TransactionAdmin("localhost:9092") as admin:
        for hanging in await admin.find_hanging(partitions, older_than_ms=an_hour_ago_ms):
            await admin.abort(hanging.partition, hanging.producer)

A transaction hangs when a partition waits for its end and no coordinator knows of it: nobody will ever end it, and
readers of what is committed come no further.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.admin import Admin
from tidelog.client.errors import BadReply, check
from tidelog.types import BrokerId, TopicPartition
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TRANSACTION = 1
_LIVING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: BrokerId


class TransactionDescription(NamedTuple):
    transactional_id: str
    coordinator: BrokerId
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """None while there is no transaction."""
    partitions: frozenset[TopicPartition]


class PartitionProducer(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int | None
    """The first offset of the transaction that is open there."""


class HangingTransaction(NamedTuple):
    partition: TopicPartition
    producer: PartitionProducer
    transactional_id: str | None
    """Of whoever has the producer id now, if anybody has."""


class TransactionAdmin(Admin):
    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Of all coordinators, by transactional id."""
        await self._retrying("listing brokers", lambda: self._cluster.refresh(()))
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        brokers = sorted(self._cluster.metadata.nodes)
        found = await asyncio.gather(*(self._list_at(broker, request) for broker in brokers))
        return sorted(each for listed in found for each in listed)

    async def _list_at(self, broker: BrokerId, request: ListTransactionsRequest) -> list[ListedTransaction]:
        async def attempt() -> ListTransactionsResponse:
            connection = await self._cluster.connection(broker)
            reply = await connection.send(request, ListTransactionsResponse)
            check(reply.error_code, about=f"broker {broker}")
            return reply

        reply = await self._retrying("listing transactions", attempt)
        return [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, broker)
            for each in reply.transaction_states
        ]

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        async def attempt() -> TransactionDescription:
            coordinator = await self._coordinator_of(transactional_id)
            connection = await self._cluster.connection(coordinator)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            reply = await connection.send(request, DescribeTransactionsResponse)
            (found,) = reply.transaction_states
            check(found.error_code, about=f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                coordinator,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
                frozenset(TopicPartition(topic.topic, each) for topic in found.topics for each in topic.partitions),
            )

        return await self._retrying("describing a transaction", attempt)

    async def _coordinator_of(self, transactional_id: str) -> BrokerId:
        connection = await self._cluster.any_connection()
        request = FindCoordinatorRequest(key_type=_TRANSACTION, key=transactional_id)
        if connection.version_of(FindCoordinatorRequest) >= 4:  # since when it takes many keys
            request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[transactional_id])
        reply = await connection.send(request, FindCoordinatorResponse)
        if not reply.coordinators:
            check(reply.error_code, reply.error_message, f"transactional id {transactional_id}")
            return BrokerId(reply.node_id)
        found = reply.coordinators[0]
        check(found.error_code, found.error_message, f"transactional id {transactional_id}")
        return BrokerId(found.node_id)

    async def describe_producers(self, partition: TopicPartition) -> list[PartitionProducer]:
        """Those that the partition's leader remembers, by producer id."""
        topic = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])

        async def attempt() -> list[PartitionProducer]:
            leader = await self._cluster.leader(partition)
            connection = await self._cluster.connection(leader.id)
            reply = await connection.send(DescribeProducersRequest(topics=[topic]), DescribeProducersResponse)
            try:
                ((found,),) = [each.partitions for each in reply.topics]
            except ValueError:
                raise BadReply(f"the answer about {partition} is about something else") from None
            check(found.error_code, found.error_message, str(partition))
            return sorted(_producer(each) for each in found.active_producers)

        return await self._cluster.retrying("describing producers", attempt, topics=[partition.topic])

    async def find_hanging(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int
    ) -> list[HangingTransaction]:
        """Transactions whose producer has written nothing since `older_than_ms`, and which no coordinator knows of."""
        suspects: dict[TopicPartition, list[PartitionProducer]] = {}
        for partition in partitions:
            producers = await self.describe_producers(partition)
            late = [each for each in producers if each.transaction_start is not None]
            suspects[partition] = [each for each in late if each.last_timestamp_ms < older_than_ms]
        producer_ids = sorted({each.producer_id for late in suspects.values() for each in late})
        if not producer_ids:
            return []
        listed = await self.list_transactions(producer_ids=producer_ids)
        known: defaultdict[int, list[TransactionDescription]] = defaultdict(list)
        for each in listed:
            known[each.producer_id].append(await self.describe_transaction(each.transactional_id))
        hanging: list[HangingTransaction] = []
        for partition, late in suspects.items():
            for producer in late:
                owners = known[producer.producer_id]
                if not any(_is_in(partition, each) for each in owners):
                    owner = owners[0].transactional_id if owners else None
                    hanging.append(HangingTransaction(partition, producer, owner))
        return hanging

    async def abort(self, partition: TopicPartition, producer: PartitionProducer) -> None:
        """Writes the marker that nobody else will. Only for a transaction that hangs: its coordinator is not asked."""
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )

        async def attempt() -> None:
            leader = await self._cluster.leader(partition)
            connection = await self._cluster.connection(leader.id)
            reply = await connection.send(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
            for written in reply.markers:
                for topic in written.topics:
                    for result in topic.partitions:
                        check(result.error_code, about=str(partition))

        await self._cluster.retrying("aborting a transaction", attempt, topics=[partition.topic])


def _producer(state: ProducerState) -> PartitionProducer:
    start = state.current_txn_start_offset
    return PartitionProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        start if start >= 0 else None,
    )


def _is_in(partition: TopicPartition, transaction: TransactionDescription) -> bool:
    return transaction.state in _LIVING and partition in transaction.partitions
