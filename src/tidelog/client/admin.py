"""Looks after topics, partitions, settings and stored records.

    async with Admin("localhost:9092") as admin:
        await admin.create_topic("orders", partitions=6)

Calls about one thing raise BrokerError when the broker refuses. Calls about several return, for each, the result or the
BrokerError that stood in the way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.client import descriptions
from tidelog.client.cluster import Cluster
from tidelog.client.config import ClientConfig
from tidelog.client.descriptions import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDir,
    NewTopic,
    TopicDescription,
)
from tidelog.client.errors import BadReply, check, refusal
from tidelog.client.offsets import FoundOffset, OffsetSpec, list_offsets
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.wire.messages.create_partitions import (
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
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from tidelog.wire.declare import Message

M = TypeVar("M", bound="Message")
T = TypeVar("T")

_SET, _DELETE = 0, 1


class Admin:
    """`async with` connects; leaving closes every connection."""

    def __init__(self, bootstrap: str | Sequence[str], config: ClientConfig | None = None) -> None:
        self.config = config or ClientConfig()
        self._cluster = Cluster(bootstrap, self.config)

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    # Topics

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
        return _result((await self.create_topics([topic], validate_only=validate_only))[name])

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | BrokerError]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
        )
        reply = await self._ask_controller(
            "creating topics", request, CreateTopicsResponse, lambda r: [topic.error_code for topic in r.topics]
        )
        return {
            topic.name: refusal(topic.error_code, topic.error_message, f"topic {topic.name}")
            if topic.error_code
            else CreatedTopic(topic.name, TopicId(topic.topic_id), topic.num_partitions, topic.replication_factor)
            for topic in reply.topics
        }

    async def delete_topic(self, name: str) -> None:
        _result((await self.delete_topics([name]))[name])

    async def delete_topics(self, names: Iterable[str]) -> dict[str, BrokerError | None]:
        """None: deleted."""
        names = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=names,
            timeout_ms=self.config.request_timeout_ms,
        )
        reply = await self._ask_controller(
            "deleting topics",
            request,
            DeleteTopicsResponse,
            lambda r: [topic.error_code for topic in r.responses],
            prepare=_delete_by_name_in_old_versions,
        )
        return {
            topic.name or "": refusal(topic.error_code, topic.error_message, f"topic {topic.name}")
            if topic.error_code
            else None
            for topic in reply.responses
        }

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name."""
        metadata = await self._retrying("listing topics", self._cluster.refresh_all)
        topics = sorted(metadata.topics.values(), key=lambda topic: topic.name)
        return [descriptions.topic(topic) for topic in topics if include_internal or not topic.internal]

    async def describe_topic(self, name: str) -> TopicDescription:
        return _result((await self.describe_topics([name]))[name])

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription | BrokerError]:
        names = list(names)
        await self._retrying("describing topics", lambda: self._cluster.refresh(names))
        found: dict[str, TopicDescription | BrokerError] = {}
        for name in names:
            topic = self._cluster.metadata.topics.get(name)
            if topic is None or topic.error:
                code = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[name] = refusal(code, about=f"topic {name}")
            else:
                found[name] = descriptions.topic(topic)
        return found

    async def add_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        """Grows the topic to `total` partitions. Records of a key may go elsewhere from then on."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=self.config.request_timeout_ms,
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

    # Settings

    async def describe_configs(self, resource: ConfigResource, keys: Sequence[str] | None = None) -> list[ConfigEntry]:
        """All settings of a topic or a broker, or those named, by name."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        reply = await self._ask(resource.broker, "describing settings", request, DescribeConfigsResponse)
        if len(reply.results) != 1:
            raise BadReply(f"{resource}: the broker's answer leaves it out")
        result = reply.results[0]
        check(result.error_code, result.error_message, str(resource))
        return sorted((descriptions.config_entry(entry) for entry in result.configs), key=lambda entry: entry.name)

    async def alter_configs(
        self,
        resource: ConfigResource,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the word for it
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Changes the settings named and leaves the others as they are; a deleted one goes back to its default."""
        changes = [
            AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in (set or {}).items()
        ]
        changes += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in delete]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=changes)],
            validate_only=validate_only,
        )
        what = "changing settings"
        if resource.broker is not None:
            reply = await self._ask(resource.broker, what, request, IncrementalAlterConfigsResponse)
        else:
            reply = await self._ask_controller(
                what, request, IncrementalAlterConfigsResponse, lambda r: [each.error_code for each in r.responses]
            )
        for response in reply.responses:
            check(response.error_code, response.error_message, str(resource))

    # Records

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec]
    ) -> dict[TopicPartition, FoundOffset | None]:
        """None: no record has the timestamp asked for, or a later one."""
        return await list_offsets(self._cluster, wanted)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | BrokerError]:
        """Deletes what lies before the offsets (-1: everything); gives each partition's new start."""
        done: dict[TopicPartition, Offset | BrokerError] = {}

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
    ) -> dict[TopicPartition, Offset | BrokerError]:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for partition, offset in before.items():
            topics.setdefault(partition.topic, []).append(
                DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            )
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=self.config.request_timeout_ms,
        )
        reply = await (await self._cluster.connection(broker)).send(request, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, answer.partition_index): refusal(
                answer.error_code, about=f"{topic.name}-{answer.partition_index}"
            )
            if answer.error_code
            else Offset(answer.low_watermark)
            for topic in reply.topics
            for answer in topic.partitions
        }

    # The cluster

    async def describe_cluster(self) -> ClusterDescription:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        reply = await self._ask(None, "describing the cluster", request, DescribeClusterResponse)
        check(reply.error_code, reply.error_message)
        return descriptions.cluster(reply)

    async def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> list[LogDir]:
        """The log directories of the brokers (all of them unless named), with the size of every partition in them."""
        await self._retrying("listing brokers", lambda: self._cluster.refresh(()))
        chosen = sorted(self._cluster.metadata.nodes) if brokers is None else [BrokerId(broker) for broker in brokers]
        request = DescribeLogDirsRequest(topics=None)
        asked = [self._ask(broker, "describing log directories", request, DescribeLogDirsResponse) for broker in chosen]
        dirs: list[LogDir] = []
        for broker, reply in zip(chosen, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(reply, BaseException):
                raise reply
            check(reply.error_code, about=f"broker {broker}")
            dirs += [descriptions.log_dir(broker, result) for result in reply.results]
        return dirs

    # Asking

    async def _retrying(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retrying(what, attempt)

    async def _ask(self, broker: BrokerId | None, what: str, request: Message, response: type[M]) -> M:
        """Asks one broker, or any."""

        async def attempt() -> M:
            cluster = self._cluster
            connection = await (cluster.any_connection() if broker is None else cluster.connection(broker))
            return await connection.send(request, response)

        return await self._retrying(what, attempt)

    async def _ask_controller(
        self,
        what: str,
        request: Message,
        response: type[M],
        codes: Callable[[M], Sequence[int]],
        prepare: Callable[[Message, int], Message] | None = None,
    ) -> M:
        """Asks the controller, whoever that is by then; `codes` are looked through for NOT_CONTROLLER."""
        timeout_ms = self.config.request_timeout_ms * 2  # the broker's own time to do it, and as much for the way

        async def attempt() -> M:
            connection = await self._cluster.controller()
            prepared = request if prepare is None else prepare(request, connection.version_of(type(request)))
            reply = await connection.send(prepared, response, timeout_ms=timeout_ms)
            if ErrorCode.NOT_CONTROLLER in codes(reply):
                raise refusal(ErrorCode.NOT_CONTROLLER, about=what)
            return reply

        return await self._retrying(what, attempt)


def _result(outcome: T | BrokerError) -> T:
    if isinstance(outcome, BrokerError):
        raise outcome
    return outcome


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
