"""The cluster as a whole, its brokers, and their disks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client import descriptions
from tidelog.client.administration.asking import Asking, outcome_of
from tidelog.client.errors import check
from tidelog.client.outcomes import Outcomes
from tidelog.types import BrokerId, TopicPartition
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.client.descriptions import ClusterDescription, LogDir


class VersionRange(NamedTuple):
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Features:
    """What changes when a whole cluster is upgraded, such as transaction.version."""

    finalized: Mapping[str, int]
    """The level that the cluster has agreed on."""
    supported: Mapping[str, VersionRange]
    """What the broker asked could do."""
    epoch: int
    """Grows with every change; -1 when the broker does not say."""


class BrokerAdmin(Asking):
    async def describe_cluster(self) -> ClusterDescription:
        connection = await self._retrying("connecting", self._cluster.any_connection)
        if DescribeClusterRequest.API not in connection.offered:  # as before Kafka 2.8
            await self._retrying("describing the cluster", lambda: self._cluster.refresh(()))
            return descriptions.cluster_by_metadata(self._cluster.metadata)
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        reply = await self._ask(
            None, "describing the cluster", request, DescribeClusterResponse, lambda r: r.error_code
        )
        return descriptions.cluster(reply)

    async def describe_features(self) -> Features:
        """By what a broker said when it was connected to."""
        connection = await self._retrying("connecting", self._cluster.any_connection)
        supported = {name: VersionRange(*levels) for name, levels in connection.supported_features.items()}
        return Features(dict(connection.features), supported, connection.features_epoch)

    async def unregister_broker(self, broker: int) -> None:
        """Has the cluster forget a broker that will not come back."""
        reply = await self._ask_controller(
            "unregistering a broker",
            UnregisterBrokerRequest(broker_id=broker),
            UnregisterBrokerResponse,
            lambda r: [r.error_code],
        )
        check(reply.error_code, reply.error_message, f"broker {broker}")

    async def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> list[LogDir]:
        """The log directories of the brokers (all of them unless named), with the size of every partition in them."""
        request = DescribeLogDirsRequest(topics=None)
        replies = await self._ask_brokers(
            brokers, "describing log directories", request, DescribeLogDirsResponse, lambda r: r.error_code
        )
        return [descriptions.log_dir(broker, result) for broker, reply in replies.items() for result in reply.results]

    async def move_to_log_dir(
        self, broker: int, path: str, partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """Has the broker move its replicas to another of its log directories. None: it has begun to."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        named = [AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=named)])
        reply = await self._ask(BrokerId(broker), "moving replicas", request, AlterReplicaLogDirsResponse)
        moved: Outcomes[TopicPartition, None] = Outcomes()
        for topic_result in reply.results:
            for result in topic_result.partitions:
                moving = TopicPartition(topic_result.topic_name, result.partition_index)
                moved[moving] = outcome_of(result.error_code, None, str(moving), None)
        return moved
