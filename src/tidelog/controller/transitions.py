"""What happens to partitions when brokers come, go and ask to stop, or when leaders should move. Pure.

Every function reads the controller's image, in which `brokers` are the live ones, and returns the changes that would
put things right: an empty list when they are. All are linear in the number of partitions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.controller.election import elect, elect_preferred, elect_without, led, preferred
from tidelog.controller.image import NO_LEADER, PartitionImage
from tidelog.controller.observers import observers_among
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tidelog.controller.image import BrokerIds, ClusterImage, TopicImage

NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PartitionChange:
    topic_partition: TopicPartition
    before: PartitionImage | None
    """None: the partition is new."""
    partition: PartitionImage

    @property
    def moves_leader(self) -> bool:
        return self.before is None or self.before.leader != self.partition.leader

    @property
    def moves_replicas(self) -> bool:
        """Whether the assignment in the topic's own node changes too."""
        before, after = self.before, self.partition
        return before is None or (before.replicas, before.adding, before.removing) != (
            after.replicas,
            after.adding,
            after.removing,
        )


def partitions_of(image: ClusterImage) -> Iterator[tuple[TopicImage, TopicPartition, PartitionImage]]:
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            yield topic, TopicPartition(topic.name, number), partition


def settle(
    image: ClusterImage,
    shutting_down: BrokerIds,
    unclean: Callable[[TopicImage], bool],
    *,
    doubtful: Callable[[TopicPartition], BrokerIds] = lambda _: NOBODY,
    topics: Iterable[TopicImage] | None = None,
) -> list[PartitionChange]:
    """Gives every partition a leader that lives, and takes those who do not out of the in-sync replicas.

    `doubtful` are live brokers that have been away since they were last in sync: they may have lost what they had
    acknowledged, so they stay in sync only if nobody else is. Changes that give partitions a new leader come first.
    """
    moved: list[PartitionChange] = []
    shrunk: list[PartitionChange] = []
    for topic in image.topics.values() if topics is None else topics:
        may_be_unclean: bool | None = None
        for number, partition in enumerate(topic.partitions):
            topic_partition = TopicPartition(topic.name, number)
            live = image.live(topic_partition)
            doubts = doubtful(topic_partition)
            if not doubts and _in_order(partition, live):
                continue
            if may_be_unclean is None:
                may_be_unclean = unclean(topic)
            after = _settled(partition, live, doubts, shutting_down, unclean=may_be_unclean)
            if after is not None:
                change = PartitionChange(topic_partition, partition, after)
                (moved if change.moves_leader else shrunk).append(change)
    return moved + shrunk


def _in_order(partition: PartitionImage, live: BrokerIds) -> bool:
    isr, replicas = partition.isr, partition.replicas
    return partition.leader in isr and all(replica in live and replica in replicas for replica in isr)


def _settled(
    partition: PartitionImage, live: BrokerIds, doubts: BrokerIds, shutting_down: BrokerIds, *, unclean: bool
) -> PartitionImage | None:
    # A crash may have come between the change of a topic's replicas and that of a partition's state.
    live = live & set(partition.replicas)
    trusted = live - doubts
    if partition.leader in trusted and partition.leader in partition.isr:
        isr = tuple(replica for replica in partition.isr if replica in trusted)
        if isr == partition.isr:
            return None
        return _same_leader(partition, isr)
    elected = elect(partition, trusted, avoid=shutting_down)
    if elected is None:
        elected = elect(partition, live, avoid=shutting_down, unclean=unclean)
    if elected is None:
        return None if partition.leader == NO_LEADER else led(partition, None)
    unchanged = (elected.leader, elected.isr) == (partition.leader, partition.isr)
    if unchanged and len(partition.replicas) == 1:
        return None  # nobody can have copied what a returning leader may have lost
    return led(partition, elected)


def _same_leader(partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    """Other in-sync replicas by the controller's decision: the epoch rises, so that the leader takes it up."""
    return replace(
        partition,
        isr=isr,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def move_away(image: ClusterImage, broker_id: int, shutting_down: BrokerIds) -> list[PartitionChange]:
    """Takes a broker that is about to stop out of every partition that others can carry on without it."""
    moved: list[PartitionChange] = []
    shrunk: list[PartitionChange] = []
    for _topic, topic_partition, partition in partitions_of(image):
        live = image.live(topic_partition)
        if broker_id not in partition.isr or partition.leader == NO_LEADER:
            continue
        if partition.leader == broker_id:
            elected = elect_without(partition, broker_id, live, shutting_down)
            if elected is not None:
                moved.append(PartitionChange(topic_partition, partition, led(partition, elected)))
        elif partition.leader in live:
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            shrunk.append(PartitionChange(topic_partition, partition, _same_leader(partition, isr)))
    return moved + shrunk


def still_led_by(image: ClusterImage, broker_id: int) -> list[TopicPartition]:
    """What a broker that wants to stop still leads although others hold it too. What it holds alone stops with it."""
    return [
        topic_partition
        for _topic, topic_partition, partition in partitions_of(image)
        if partition.leader == broker_id and len(partition.replicas) > 1
    ]


def prefer(
    image: ClusterImage, shutting_down: BrokerIds, wanted: Iterable[TopicPartition]
) -> tuple[list[PartitionChange], dict[TopicPartition, ErrorCode]]:
    """Gives the leadership back to preferred replicas; for each partition, why not or NONE."""
    changes = []
    outcome: dict[TopicPartition, ErrorCode] = {}
    for topic_partition in wanted:
        partition = find(image, topic_partition)
        if partition is None:
            outcome[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.leader == preferred(partition) and partition.leader in image.brokers:
            outcome[topic_partition] = ErrorCode.ELECTION_NOT_NEEDED
        elif (elected := elect_preferred(partition, image.live(topic_partition) - shutting_down)) is None:
            outcome[topic_partition] = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        elif topic_partition not in outcome:
            outcome[topic_partition] = ErrorCode.NONE
            changes.append(PartitionChange(topic_partition, partition, led(partition, elected)))
    return changes, outcome


def lead_uncleanly(
    image: ClusterImage, shutting_down: BrokerIds, wanted: Iterable[TopicPartition]
) -> tuple[list[PartitionChange], dict[TopicPartition, ErrorCode]]:
    """Has partitions without a leader led by whoever lives, because somebody asked for it."""
    changes = []
    outcome: dict[TopicPartition, ErrorCode] = {}
    for topic_partition in wanted:
        partition = find(image, topic_partition)
        if partition is None:
            outcome[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.leader in image.brokers:
            outcome[topic_partition] = ErrorCode.ELECTION_NOT_NEEDED
        elif (elected := elect(partition, image.live(topic_partition), avoid=shutting_down, unclean=True)) is None:
            outcome[topic_partition] = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        elif topic_partition not in outcome:
            outcome[topic_partition] = ErrorCode.NONE
            changes.append(PartitionChange(topic_partition, partition, led(partition, elected)))
    return changes, outcome


def reobserve(
    image: ClusterImage, topic: TopicImage, observer_racks: Collection[str], shutting_down: BrokerIds
) -> list[PartitionChange]:
    """Makes observers of the replicas in these racks: they leave the in-sync replicas and lead no more."""
    racks = {broker.broker_id: broker.rack for broker in image.brokers.values()}
    changes = []
    for number, partition in enumerate(topic.partitions):
        observers = observers_among(partition.replicas, racks, observer_racks, isr=partition.isr)
        if observers == partition.observers:
            continue
        topic_partition = TopicPartition(topic.name, number)
        after = replace(partition, observers=observers)
        isr = tuple(replica for replica in partition.isr if replica not in observers)
        if partition.leader in observers:
            after = replace(after, isr=isr)
            after = led(after, elect(after, image.live(topic_partition), avoid=shutting_down))
        elif isr != partition.isr:
            after = _same_leader(after, isr)
        changes.append(PartitionChange(topic_partition, partition, after))
    return changes


def out_of_balance(image: ClusterImage, imbalance_percentage_max: int) -> list[TopicPartition]:
    """Partitions that should go back to preferred leaders, of which more than the allowed share are led elsewhere."""
    held: defaultdict[int, int] = defaultdict(int)
    elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for _topic, topic_partition, partition in partitions_of(image):
        broker_id = preferred(partition)
        if broker_id not in image.brokers:
            continue
        held[broker_id] += 1
        if partition.leader != broker_id:
            elsewhere[broker_id].append(topic_partition)
    return [
        topic_partition
        for broker_id, partitions in elsewhere.items()
        if len(partitions) * 100 > imbalance_percentage_max * held[broker_id]
        for topic_partition in partitions
        if not _partition(image, topic_partition).reassigning
    ]


def fresh_partition(replicas: Sequence[int], live: Collection[int], observers: tuple[int, ...] = ()) -> PartitionImage:
    """The first state of a partition: all live replicas are in sync, since all are empty."""
    regular = tuple(replica for replica in replicas if replica not in observers)
    alive = tuple(replica for replica in regular if replica in live)
    return PartitionImage(
        tuple(replicas), alive or regular, alive[0] if alive else NO_LEADER, leader_epoch=0, observers=observers
    )


def without(
    offline: Mapping[TopicPartition, frozenset[int]], brokers: BrokerIds
) -> dict[TopicPartition, frozenset[int]]:
    """What is offline, apart from these brokers."""
    left = {each: failed - brokers for each, failed in offline.items()}
    return {each: failed for each, failed in left.items() if failed}


def find(image: ClusterImage, topic_partition: TopicPartition) -> PartitionImage | None:
    topic = image.topics.get(topic_partition.topic)
    if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
        return None
    return topic.partitions[topic_partition.partition]


def _partition(image: ClusterImage, topic_partition: TopicPartition) -> PartitionImage:
    return image.topics[topic_partition.topic].partitions[topic_partition.partition]
