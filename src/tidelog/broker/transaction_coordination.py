"""Fits the transaction coordinator into the broker: its internal topic, its partitions' logs, the markers it sends, and
how partitions led here ask the coordinators of transactions that they are written in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.broker.markers import Markers
from tidelog.broker.state_log import PartitionStateLog
from tidelog.broker.transaction_questions import TransactionQuestions
from tidelog.controller.image import NO_LEADER, TRANSACTIONS_TOPIC
from tidelog.controller.topic_rules import TopicSpec
from tidelog.coordinators.coordinator import Coordinator
from tidelog.coordinators.stored import RecordFormat
from tidelog.coordinators.transactions.config import TransactionConfig
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.compression import Codec
from tidelog.types import TopicPartition
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from tidelog.wire.stored.transactions import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidelog.clock import Clock
    from tidelog.controller.image import ClusterImage
    from tidelog.controller.producer_ids import ProducerIds
    from tidelog.controller.settings import Settings
    from tidelog.coordinators.transactions.shard import SendMarkers
    from tidelog.handlers.handler import TopicsOnDemand
    from tidelog.replication.partition import Partition
    from tidelog.wire.declare import Message

TRANSACTION_RECORDS = RecordFormat({0: (TransactionLogKey, TransactionLogValue)})

_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Producers do not know what these mean of a partition. NOT_ENOUGH_REPLICAS has them try again, as Kafka does."""


class TransactionCoordination:
    """Fits `handlers.handler.Transactions`."""

    def __init__(
        self,
        image: ClusterImage,
        settings: Settings,
        topics: TopicsOnDemand,
        producer_ids: ProducerIds,
        clock: Clock,
        *,
        send_markers: Callable[[int, Message], Awaitable[Any]],
        send_questions: Callable[[int, Message], Awaitable[Any]],
    ) -> None:
        self._image = image
        self._settings = settings
        self._topics = topics
        self._producer_ids = producer_ids
        self._led: dict[int, tuple[Partition, int]] = {}
        """The partitions of the internal topic that are coordinated here, each with the epoch it was loaded in."""
        self._markers = Markers(send_markers, self._leader_of, self._epoch_of, self._written, clock)
        self._questions = TransactionQuestions(send_questions)
        self.coordinator: Coordinator[TransactionShard] = Coordinator(
            TRANSACTIONS_TOPIC, self._make_shard, self._partition_count, clock, self._markers.write
        )

    def _make_shard(self) -> TransactionShard:
        return TransactionShard(TransactionConfig.from_broker(self._settings.broker), self._producer_ids.take_now)

    def _partition_count(self) -> int | None:
        found = self._image.topics.get(TRANSACTIONS_TOPIC)
        return None if found is None else len(found.partitions)

    async def ensure_topic(self) -> None:
        """Creates the internal topic when the first transactional id is looked for."""
        if TRANSACTIONS_TOPIC in self._image.topics:
            return
        broker = self._settings.broker
        spec = TopicSpec(
            TRANSACTIONS_TOPIC,
            broker.transaction_state_log_num_partitions,
            broker.transaction_state_log_replication_factor,
            {},
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(broker.transaction_state_log_min_isr),
                "segment.bytes": str(broker.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
        try:
            await self._topics.create(spec)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def leads(self, partition: Partition) -> None:
        """This broker leads `partition` from now on."""
        number = partition.topic_partition.partition
        self._led[number] = partition, partition.leader_epoch
        self.coordinator.lead(number, PartitionStateLog(partition, TRANSACTION_RECORDS, Codec.NONE))

    def loses(self, partition: Partition) -> None:
        number = partition.topic_partition.partition
        self._led.pop(number, None)
        self.coordinator.resign(number)
        self._markers.forget(lambda transactional_id: self.coordinator.partition_of(transactional_id) == number)

    def topics_changed(self, deleted: tuple[str, ...]) -> None:
        self._markers.topics_deleted(deleted)

    async def stop(self) -> None:
        self.coordinator.close()
        self._led.clear()
        await self._markers.stop()
        await self._questions.stop()

    # --- markers ---

    def _leader_of(self, place: TopicPartition) -> int | None:
        topic = self._image.topics.get(place.topic)
        if topic is None:
            return None
        return topic.partitions[place.partition].leader if place.partition < len(topic.partitions) else NO_LEADER

    def _epoch_of(self, transactional_id: str) -> int | None:
        number = self.coordinator.partition_of(transactional_id)
        if number is None or number not in self._led:
            return None
        partition, epoch = self._led[number]
        if partition.leader_epoch == epoch:
            return epoch
        # Elected anew without having stepped down. Somebody else may have coordinated in between, and sent markers that
        # fence those of this reign: it is begun again, with what the log says.
        del self._led[number]
        asyncio.get_running_loop().call_soon(self._lead_anew, partition)
        return None

    def _lead_anew(self, partition: Partition) -> None:
        if partition.leads and partition.topic_partition.partition not in self._led:
            self.leads(partition)

    def _written(self, sent: SendMarkers) -> None:
        try:
            shard = self.coordinator.shard_of(sent.transactional_id)
        except BrokerError:
            return  # whoever coordinates it now has them written once more
        shard.perform(lambda shard, now_ms: shard.markers_written(sent, now_ms))

    # --- for partitions led here, wherever the coordinator is ---

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        question = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        loop = asyncio.get_running_loop()
        config = self._settings.broker
        give_up_s = loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        pause_s = config.add_partitions_to_txn_retry_backoff_ms / 1000
        while True:
            codes = await self._ask(question, partitions)
            # The transaction before it is being ended: mostly that takes less time than asking the producer to wait.
            busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not (add and busy) or loop.time() + pause_s >= give_up_s:
                break
            await asyncio.sleep(pause_s)
        return {place: _for_producers(code, add=add) for place, code in codes.items()}

    async def _ask(
        self, question: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        number = self.coordinator.partition_of(question.transactional_id)
        leader = NO_LEADER if number is None else self._leader_of(TopicPartition(TRANSACTIONS_TOPIC, number))
        if leader is None or leader == NO_LEADER:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            result = await self._questions.ask(leader, question)
        except BrokerError as error:
            return dict.fromkeys(partitions, error.code)
        codes = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        return {place: codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in partitions}


def _for_producers(code: ErrorCode, *, add: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not add):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    return code
