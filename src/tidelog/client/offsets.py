"""Asking leaders for offsets: where a partition starts and ends, and where a point in time lies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.divergence import EpochEnd
from tidelog.client.errors import NotSupported, refusal
from tidelog.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.backoff import Deadline
    from tidelog.client.cluster import Cluster
    from tidelog.errors import BrokerError

_EPOCHS_FOR_READERS_SINCE = 3  # before that, only those who may act on the cluster are told
_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_NO_REPLICA = -1
_NOT_FOUND = -1


class OffsetSpec(NamedTuple):
    """Which offset of a partition is meant: make one with `earliest()`, `latest()` and their like."""

    timestamp: int

    @classmethod
    def earliest(cls) -> OffsetSpec:
        return cls(_EARLIEST)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The end: the offset that the next record will take."""
        return cls(_LATEST)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The record with the largest timestamp."""
        return cls(_MAX_TIMESTAMP)

    @classmethod
    def at_timestamp(cls, timestamp_ms: int) -> OffsetSpec:
        """The first record with this timestamp or a later one."""
        if timestamp_ms < 0:
            raise ValueError(f"a timestamp is milliseconds since 1970, not {timestamp_ms}")
        return cls(timestamp_ms)


class OffsetAndMetadata(NamedTuple):
    """A position as a group keeps it."""

    offset: Offset
    """Of the next record to be read."""
    metadata: str = ""
    """A note of the application's own."""
    leader_epoch: int = -1


class FoundOffset(NamedTuple):
    offset: Offset
    timestamp: int
    """Of the record at `offset`; -1 where the question was not about a record."""
    leader_epoch: LeaderEpoch


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, OffsetSpec],
    deadline: Deadline | None = None,
    *,
    committed_only: bool = False,
) -> dict[TopicPartition, FoundOffset | None]:
    """Asks the leader of each partition. None: no record has that timestamp or a later one.

    With `committed_only`, a partition ends before its first transaction that is still open.
    """
    found: dict[TopicPartition, FoundOffset | None] = {}

    async def attempt() -> None:
        by_leader: dict[BrokerId, dict[TopicPartition, OffsetSpec]] = {}
        for partition, spec in wanted.items():
            if partition not in found:
                leader = await cluster.leader(partition)
                by_leader.setdefault(leader.id, {})[partition] = spec
        asked = [
            _ask(cluster, broker, specs, found, committed_only=committed_only) for broker, specs in by_leader.items()
        ]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    topics = {partition.topic for partition in wanted}
    await cluster.retrying("listing offsets", attempt, deadline, topics=topics)
    return {partition: found[partition] for partition in wanted}


async def _ask(
    cluster: Cluster,
    broker: BrokerId,
    specs: Mapping[TopicPartition, OffsetSpec],
    found: dict[TopicPartition, FoundOffset | None],
    *,
    committed_only: bool,
) -> BrokerError | None:
    """Adds the answers to `found`; gives the first partition's error, so that the others are not asked again."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, spec in specs.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=spec.timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=_NO_REPLICA,
        isolation_level=int(committed_only),
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=cluster.config.request_timeout_ms,
    )
    connection = await cluster.connection(broker)
    reply = await connection.send(request, ListOffsetsResponse)
    failed: BrokerError | None = None
    for topic in reply.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                failed = failed or refusal(answer.error_code, about=str(partition))
            elif answer.offset == _NOT_FOUND:
                found[partition] = None
            else:
                found[partition] = FoundOffset(
                    Offset(answer.offset), answer.timestamp, LeaderEpoch(answer.leader_epoch)
                )
    return failed


class EpochQuestion(NamedTuple):
    """Where did this epoch end?"""

    epoch: int
    leader_epoch: int
    """Of the leader that is asked."""


async def epoch_ends(
    cluster: Cluster, broker: BrokerId, questions: Mapping[TopicPartition, EpochQuestion]
) -> dict[TopicPartition, EpochEnd | BrokerError]:
    """Asks the leader of these partitions, once. NotSupported by brokers older than Kafka 2.3."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for partition, question in questions.items():
        topics.setdefault(partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=partition.partition,
                current_leader_epoch=question.leader_epoch,
                leader_epoch=question.epoch,
            )
        )
    connection = await cluster.connection(broker)
    if connection.version_of(OffsetForLeaderEpochRequest) < _EPOCHS_FOR_READERS_SINCE:
        raise NotSupported("the broker does not tell readers where epochs end: Kafka does since 2.3")
    request = OffsetForLeaderEpochRequest(
        replica_id=_NO_REPLICA,
        topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
    )
    reply = await connection.send(request, OffsetForLeaderEpochResponse)
    found: dict[TopicPartition, EpochEnd | BrokerError] = {}
    for topic in reply.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.topic, answer.partition)
            if answer.error_code:
                found[partition] = refusal(answer.error_code, about=str(partition))
            else:
                found[partition] = EpochEnd(answer.leader_epoch, answer.end_offset)
    return found
