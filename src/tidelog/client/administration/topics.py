"""Topics, partitions and what is stored in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client import descriptions
from tidelog.client.administration.asking import Asking, outcome_of
from tidelog.client.descriptions import CreatedTopic, NewTopic, TopicDescription
from tidelog.client.errors import check, refusal
from tidelog.client.offsets import FoundOffset, OffsetSpec, list_offsets
from tidelog.client.outcomes import Outcomes
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.wire.declare import Message


class TopicAdmin(Asking):
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """-1 leaves the number to the broker's defaults."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return (await self.create_topics([topic], validate_only=validate_only)).result(name)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Outcomes[str, CreatedTopic]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._work_ms,
            validate_only=validate_only,
        )
        reply = await self._ask_controller(
            "creating topics", request, CreateTopicsResponse, lambda r: [topic.error_code for topic in r.topics]
        )
        created: Outcomes[str, CreatedTopic] = Outcomes()
        for topic in reply.topics:
            result = CreatedTopic(topic.name, TopicId(topic.topic_id), topic.num_partitions, topic.replication_factor)
            created[topic.name] = outcome_of(topic.error_code, topic.error_message, f"topic {topic.name}", result)
        return created

    async def delete_topic(self, name: str) -> None:
        (await self.delete_topics([name])).result(name)

    async def delete_topics(self, names: Iterable[str]) -> Outcomes[str, None]:
        """None: deleted."""
        names = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=names,
            timeout_ms=self._work_ms,
        )
        reply = await self._ask_controller(
            "deleting topics",
            request,
            DeleteTopicsResponse,
            lambda r: [topic.error_code for topic in r.responses],
            prepare=_delete_by_name_in_old_versions,
        )
        return Outcomes(
            (topic.name or "", outcome_of(topic.error_code, topic.error_message, f"topic {topic.name}", None))
            for topic in reply.responses
        )

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name."""
        metadata = await self._retrying("listing topics", self._cluster.refresh_all)
        topics = sorted(metadata.topics.values(), key=lambda topic: topic.name)
        return [descriptions.topic(topic) for topic in topics if include_internal or not topic.internal]

    async def describe_topic(self, name: str) -> TopicDescription:
        return (await self.describe_topics([name])).result(name)

    async def describe_topics(self, names: Iterable[str]) -> Outcomes[str, TopicDescription]:
        names = list(names)
        await self._retrying("describing topics", lambda: self._cluster.refresh(names))
        found: Outcomes[str, TopicDescription] = Outcomes()
        for name in names:
            topic = self._cluster.metadata.topics.get(name)
            if topic is None or topic.error:
                code = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[name] = refusal(code, about=f"topic {name}")
            else:
                found[name] = descriptions.topic(topic)
        return found

    async def add_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Grows the topic to `total` partitions. Records of a key may go elsewhere from then on.

        `assignments`: the brokers of each new partition, the preferred leader first.
        """
        placed = None if assignments is None else [CreatePartitionsAssignment(broker_ids=list(a)) for a in assignments]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=placed)],
            timeout_ms=self._work_ms,
            validate_only=validate_only,
        )
        reply = await self._ask_controller(
            "adding partitions",
            request,
            CreatePartitionsResponse,
            lambda r: [result.error_code for result in r.results],
        )
        for result in reply.results:
            check(result.error_code, result.error_message, f"topic {result.name}")

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset | None]:
        """None: no record has the timestamp asked for, or a later one.

        With `committed_only`, a partition ends before its first transaction that is still open.
        """
        return await list_offsets(self._cluster, wanted, committed_only=committed_only)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> Outcomes[TopicPartition, Offset]:
        """Deletes what lies before the offsets (-1: everything); gives each partition's new start."""
        done: Outcomes[TopicPartition, Offset] = Outcomes()

        async def attempt() -> None:
            by_leader: dict[BrokerId, list[TopicPartition]] = {}
            for partition in before:
                if partition not in done or _retriable(done[partition]):
                    leader = await self._cluster.leader(partition)
                    by_leader.setdefault(leader.id, []).append(partition)
            for broker, partitions in by_leader.items():
                done.update(await self._delete_from(broker, {partition: before[partition] for partition in partitions}))
            for outcome in done.values():
                if isinstance(outcome, BrokerError) and outcome.code.retriable:
                    raise outcome

        await self._cluster.retrying("deleting records", attempt, topics={partition.topic for partition in before})
        return done

    async def _delete_from(
        self, broker: BrokerId, before: Mapping[TopicPartition, int]
    ) -> Outcomes[TopicPartition, Offset]:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for partition, offset in before.items():
            topics.setdefault(partition.topic, []).append(
                DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            )
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=self._work_ms,
        )
        reply = await (await self._cluster.connection(broker)).send(request, DeleteRecordsResponse)
        deleted: Outcomes[TopicPartition, Offset] = Outcomes()
        for topic in reply.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                deleted[partition] = outcome_of(answer.error_code, None, str(partition), Offset(answer.low_watermark))
        return deleted


def _retriable(outcome: Offset | BrokerError) -> bool:
    return isinstance(outcome, BrokerError) and outcome.code.retriable


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = topic.assignments is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(topic.assignments or ())
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _delete_by_name_in_old_versions(request: Message, version: int) -> Message:
    """Before v6 topics could only be named in a plain list, which is gone since."""
    assert isinstance(request, DeleteTopicsRequest)
    if version >= 6:
        return DeleteTopicsRequest(topics=request.topics, timeout_ms=request.timeout_ms)
    return DeleteTopicsRequest(topic_names=request.topic_names, timeout_ms=request.timeout_ms)
