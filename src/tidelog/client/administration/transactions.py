"""Looks after transactions (KIP-664): which there are, what each is in, which hang, and how one is got rid of.

    async with Admin("localhost:9092") as admin:
        for hanging in await admin.find_hanging_transactions(partitions, older_than_ms=an_hour_ago_ms):
            await admin.abort_transaction(hanging.partition, hanging.producer)

A transaction hangs when a partition waits for its end and no coordinator knows of it: nobody will ever end it, and
readers of what is committed come no further.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.administration.asking import Asking, Coordinates
from tidelog.client.errors import BadReply, check
from tidelog.types import BrokerId, TopicPartition
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.client.connection import Connection
    from tidelog.client.outcomes import Outcomes

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


class TransactionAdmin(Asking):
    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Of all coordinators, by transactional id."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        replies = await self._ask_brokers(
            None, "listing transactions", request, ListTransactionsResponse, lambda r: r.error_code
        )
        return sorted(
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, broker)
            for broker, reply in replies.items()
            for each in reply.transaction_states
        )

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        async def attempt(connection: Connection, coordinator: BrokerId) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            reply = await connection.send(request, DescribeTransactionsResponse)
            if len(reply.transaction_states) != 1:
                raise BadReply(f"the answer about transactional id {transactional_id} is about something else")
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

        return await self._at_coordinator(
            Coordinates.TRANSACTION, transactional_id, "describing a transaction", attempt
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> Outcomes[str, TransactionDescription]:
        return await self._each(transactional_ids, self.describe_transaction)

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

    async def find_hanging_transactions(
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
        described = (await self.describe_transactions(each.transactional_id for each in listed)).results()
        known: defaultdict[int, list[TransactionDescription]] = defaultdict(list)
        for each in listed:
            known[each.producer_id].append(described[each.transactional_id])
        hanging: list[HangingTransaction] = []
        for partition, late in suspects.items():
            for producer in late:
                owners = known[producer.producer_id]
                if not any(_is_in(partition, each) for each in owners):
                    owner = owners[0].transactional_id if owners else None
                    hanging.append(HangingTransaction(partition, producer, owner))
        return hanging

    async def abort_transaction(self, partition: TopicPartition, producer: PartitionProducer) -> None:
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
