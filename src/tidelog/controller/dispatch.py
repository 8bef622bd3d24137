"""What the controller has to tell each broker, and the requests that say it. Pure.

An `Outbox` holds what one broker has not been told yet: not the news itself but what it is about. The requests are
written from the controller's image when they are sent, so that whatever has changed meanwhile is merged, and a broker
that answers slowly is told the newest state once, not every state that there was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.controller.image import BrokerIds, BrokerImage, ClusterImage, PartitionImage, TopicImage
    from tidelog.controller.transitions import PartitionChange

LEADER_DURING_DELETE = -2
"""In place of a leader: the partition is being deleted and no client shall see it any more."""
EPOCH_DURING_DELETE = -2
"""In place of a leader epoch: stop the replica whatever its epoch is."""

INCREMENTAL, FULL = 1, 2
"""Types of requests: a full one names everything, and what it does not name is not there."""


class Seal(NamedTuple):
    """By what brokers know that a request comes from the controller of the day."""

    controller_id: int
    controller_epoch: int
    listener: str
    """The listener by which brokers reach each other."""


class Stop(NamedTuple):
    leader_epoch: int
    delete: bool


class Gone(NamedTuple):
    name: str
    partitions: int


@dataclass(slots=True)
class Outbox:
    roles: dict[TopicPartition, bool] = field(default_factory=dict)
    """Partitions that the broker is to lead or follow, and whether they are new to it."""
    metadata: dict[TopicPartition, None] = field(default_factory=dict)
    gone: dict[TopicId, Gone] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    brokers: bool = False
    """Whether brokers have come, gone or moved."""
    full: bool = False
    """The broker knows nothing yet: it is told everything, in full requests."""

    def __bool__(self) -> bool:
        return bool(self.roles or self.metadata or self.gone or self.stops or self.brokers or self.full)

    def add_role(self, topic_partition: TopicPartition, *, is_new: bool) -> None:
        self.roles[topic_partition] = is_new or self.roles.get(topic_partition, False)
        self.stops.pop(topic_partition, None)

    def add_stop(self, topic_partition: TopicPartition, stop: Stop) -> None:
        self.stops[topic_partition] = stop
        self.roles.pop(topic_partition, None)

    def put_back(self, unsent: Outbox) -> None:
        """Takes back what could not be delivered, without undoing what was decided since."""
        for topic_partition, is_new in unsent.roles.items():
            if topic_partition not in self.stops:
                self.roles[topic_partition] = is_new or self.roles.get(topic_partition, False)
        for topic_partition, stop in unsent.stops.items():
            if topic_partition not in self.roles:
                self.stops.setdefault(topic_partition, stop)
        self.metadata |= unsent.metadata
        self.gone |= unsent.gone
        self.brokers |= unsent.brokers
        self.full |= unsent.full


Outboxes = dict[int, Outbox]
"""By broker id, for every live broker."""


def tell_changes(outboxes: Outboxes, changes: Iterable[PartitionChange], *, metadata_only: bool = False) -> None:
    """Replicas learn their roles, everybody learns the metadata, and those who hold no replica any more stop.

    `metadata_only`: what a leader has asked for it learns from the answer, and its followers go on as before.
    """
    everybody = outboxes.values()
    for change in changes:
        topic_partition, before, after = change.topic_partition, change.before, change.partition
        for outbox in everybody:
            outbox.metadata[topic_partition] = None
        if metadata_only:
            continue
        former = before.replicas if before else ()
        for broker_id in after.replicas:
            if broker_id in outboxes:
                outboxes[broker_id].add_role(topic_partition, is_new=broker_id not in former)
        for broker_id in former:
            if broker_id in outboxes and broker_id not in after.replicas:
                outboxes[broker_id].add_stop(topic_partition, Stop(after.leader_epoch, delete=True))


def tell_again(outbox: Outbox, broker_id: int, image: ClusterImage) -> None:
    """The broker's roles, though they have not changed: its answer tells which of its replicas it can use."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                outbox.add_role(TopicPartition(topic.name, number), is_new=False)


def tell_gone(outboxes: Outboxes, topic: TopicImage) -> None:
    """Nobody shall see a topic any more that is being deleted."""
    for outbox in outboxes.values():
        outbox.gone[topic.topic_id] = Gone(topic.name, len(topic.partitions))


def tell_to_delete(outbox: Outbox, broker_id: int, topic: TopicImage) -> None:
    for number, partition in enumerate(topic.partitions):
        if broker_id in partition.replicas:
            outbox.add_stop(TopicPartition(topic.name, number), Stop(EPOCH_DURING_DELETE, delete=True))


class Requests(NamedTuple):
    """In the order in which they are to be sent."""

    leader_and_isr: LeaderAndIsrRequest | None
    update_metadata: UpdateMetadataRequest | None
    stop_replica: StopReplicaRequest | None
    metadata_first: bool
    """A broker that knows nobody must learn where leaders are before it is told to follow them."""


def write_requests(outbox: Outbox, broker: BrokerImage, image: ClusterImage, seal: Seal) -> Requests:
    """The requests that tell `broker` what is in its outbox."""
    metadata: UpdateMetadataRequest | None = None
    if outbox.full or outbox.brokers or outbox.metadata or outbox.gone:
        metadata = _update_metadata(outbox, broker, image, seal)
    roles: LeaderAndIsrRequest | None = None
    if outbox.full or outbox.roles:
        roles = _leader_and_isr(outbox, broker, image, seal)
    stops = _stop_replica(outbox.stops, broker, seal) if outbox.stops else None
    return Requests(roles, metadata, stops, metadata_first=outbox.full)


def _leader_and_isr(outbox: Outbox, broker: BrokerImage, image: ClusterImage, seal: Seal) -> LeaderAndIsrRequest:
    roles: Mapping[TopicPartition, bool] = outbox.roles
    if outbox.full:
        held = {
            TopicPartition(topic.name, number): False
            for topic in image.topics.values()
            for number, partition in enumerate(topic.partitions)
            if broker.broker_id in partition.replicas
        }
        roles = {**held, **outbox.roles}
    topics: dict[str, LeaderAndIsrTopicState] = {}
    leaders: set[int] = set()
    for topic_partition, is_new in roles.items():
        found = _find(image, topic_partition)
        if found is None or broker.broker_id not in found[1].replicas:
            continue  # deleted or moved away since
        topic, partition = found
        told = topics.get(topic.name)
        if told is None:
            told = topics[topic.name] = LeaderAndIsrTopicState(topic_name=topic.name, topic_id=topic.topic_id)
        leaders.add(partition.leader)
        told.partition_states.append(
            LeaderAndIsrPartitionState(
                partition_index=topic_partition.partition,
                controller_epoch=seal.controller_epoch,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=list(partition.isr),
                partition_epoch=partition.partition_epoch,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
                is_new=is_new,
                leader_recovery_state=int(partition.recovering),
            )
        )
    return LeaderAndIsrRequest(
        controller_id=seal.controller_id,
        controller_epoch=seal.controller_epoch,
        broker_epoch=broker.epoch,
        type=FULL if outbox.full else INCREMENTAL,
        topic_states=list(topics.values()),
        live_leaders=_live_leaders(leaders, image, seal.listener),
    )


def _live_leaders(leaders: Iterable[int], image: ClusterImage, listener: str) -> list[LeaderAndIsrLiveLeader]:
    reachable = (
        (leader, image.brokers[leader].endpoints.get(listener)) for leader in leaders if leader in image.brokers
    )
    return [
        LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
        for leader, endpoint in reachable
        if endpoint is not None
    ]


def _update_metadata(outbox: Outbox, broker: BrokerImage, image: ClusterImage, seal: Seal) -> UpdateMetadataRequest:
    topics = _gone_states(outbox.gone, seal)
    if outbox.full:
        topics += [_topic_state(topic, range(len(topic.partitions)), image, seal) for topic in image.topics.values()]
    else:
        numbers: dict[str, list[int]] = {}
        for name, number in outbox.metadata:
            numbers.setdefault(name, []).append(number)
        topics += [
            _topic_state(image.topics[name], changed, image, seal)
            for name, changed in numbers.items()
            if name in image.topics
        ]
    return UpdateMetadataRequest(
        controller_id=seal.controller_id,
        controller_epoch=seal.controller_epoch,
        broker_epoch=broker.epoch,
        type=FULL if outbox.full else INCREMENTAL,
        topic_states=topics,
        live_brokers=[_live_broker(each) for each in image.brokers.values()],
    )


def _topic_state(
    topic: TopicImage, numbers: Sequence[int], image: ClusterImage, seal: Seal
) -> UpdateMetadataTopicState:
    partitions = topic.partitions
    return UpdateMetadataTopicState(
        topic_name=topic.name,
        topic_id=topic.topic_id,
        partition_states=[
            _metadata_state(number, partitions[number], image.live(TopicPartition(topic.name, number)), seal)
            for number in numbers
            if number < len(partitions)
        ],
    )


def _metadata_state(
    number: int, partition: PartitionImage, live: BrokerIds, seal: Seal
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=number,
        controller_epoch=seal.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=[replica for replica in partition.replicas if replica not in live],
    )


def _gone_states(gone: Mapping[TopicId, Gone], seal: Seal) -> list[UpdateMetadataTopicState]:
    """In front of all others: a topic of the same name may have been created since."""
    return [
        UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic_id,
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=number,
                    controller_epoch=seal.controller_epoch,
                    leader=LEADER_DURING_DELETE,
                    leader_epoch=EPOCH_DURING_DELETE,
                    isr=[],
                    zk_version=-1,
                    replicas=[],
                )
                for number in range(topic.partitions)
            ],
        )
        for topic_id, topic in gone.items()
    ]


def _live_broker(broker: BrokerImage) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=name,
                security_protocol=endpoint.security_protocol,
            )
            for name, endpoint in broker.endpoints.items()
        ],
        rack=broker.rack,
    )


def _stop_replica(stops: Mapping[TopicPartition, Stop], broker: BrokerImage, seal: Seal) -> StopReplicaRequest:
    topics: dict[str, StopReplicaTopicState] = {}
    for topic_partition, stop in stops.items():
        told = topics.get(topic_partition.topic)
        if told is None:
            told = topics[topic_partition.topic] = StopReplicaTopicState(topic_name=topic_partition.topic)
        told.partition_states.append(
            StopReplicaPartitionState(
                partition_index=topic_partition.partition,
                leader_epoch=stop.leader_epoch,
                delete_partition=stop.delete,
            )
        )
    return StopReplicaRequest(
        controller_id=seal.controller_id,
        controller_epoch=seal.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()),
    )


def _find(image: ClusterImage, topic_partition: TopicPartition) -> tuple[TopicImage, PartitionImage] | None:
    topic = image.topics.get(topic_partition.topic)
    if topic is None or topic_partition.partition >= len(topic.partitions):
        return None
    return topic, topic.partitions[topic_partition.partition]
