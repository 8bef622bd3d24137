"""What one broker says of its cluster, by the requests that any client may send."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.testing.raw_client import RawClient
from tidelog.types import TopicPartition
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.net.address import Address

_METADATA_VERSION = 12
_ANSWER_WITHIN_S = 5.0


class PartitionView(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class ClusterView(NamedTuple):
    controller: int
    brokers: frozenset[int]
    partitions: Mapping[TopicPartition, PartitionView]

    def of(self, topic: str) -> dict[int, PartitionView]:
        """The topic's partitions by number."""
        found = {place.partition: view for place, view in self.partitions.items() if place.topic == topic}
        return dict(sorted(found.items()))

    def led_by(self, broker: int, topic: str) -> list[int]:
        return [number for number, partition in self.of(topic).items() if partition.leader == broker]


def view_of(address: Address) -> ClusterView:
    """Asks the broker there. OSError when it does not answer."""
    with RawClient(address.port, address.host, timeout_s=_ANSWER_WITHIN_S) as client:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        reply = client.call(request, _METADATA_VERSION, MetadataResponse)
    return ClusterView(
        reply.controller_id,
        frozenset(broker.node_id for broker in reply.brokers),
        {
            TopicPartition(topic.name, partition.partition_index): PartitionView(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                frozenset(partition.isr_nodes),
            )
            for topic in reply.topics
            if topic.name is not None
            for partition in topic.partitions
        },
    )
