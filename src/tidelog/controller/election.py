"""Who leads a partition. Pure: each rule is a few lines over the replicas, who is in sync, and who lives.

A clean election takes a live in-sync replica. An unclean one, where a topic allows it, takes any live replica when no
in-sync one lives: available again, but records may be lost. Observers never lead. Among several, the first in the
partition's list of replicas is taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.controller.image import NO_LEADER, PartitionImage

if TYPE_CHECKING:
    from tidelog.controller.image import BrokerIds


class Elected(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect(
    partition: PartitionImage, live: BrokerIds, *, avoid: BrokerIds = frozenset(), unclean: bool = False
) -> Elected | None:
    """The leader of a partition that needs one, and who is in sync then; None if nobody may lead.

    `avoid` are brokers that lead only if nobody else can: they are about to stop.
    """
    isr = tuple(replica for replica in partition.isr if replica in live)
    leader = _first(partition, isr, avoid)
    if leader is not None:
        return Elected(leader, isr)
    if unclean:
        leader = _first(partition, live, avoid)
        if leader is not None:
            return Elected(leader, (leader,), unclean=True)
    return None


def _first(partition: PartitionImage, among: BrokerIds | tuple[int, ...], avoid: BrokerIds) -> int | None:
    second_choice = None
    for replica in partition.replicas:
        if replica in among and replica not in partition.observers:
            if replica not in avoid:
                return replica
            if second_choice is None:
                second_choice = replica
    return second_choice


def preferred(partition: PartitionImage) -> int:
    """The replica that should lead when all is well; NO_LEADER if all are observers."""
    return next((replica for replica in partition.replicas if replica not in partition.observers), NO_LEADER)


def elect_preferred(partition: PartitionImage, live: BrokerIds) -> Elected | None:
    """The preferred replica if it is alive and in sync. Who else is in sync does not change."""
    leader = preferred(partition)
    return Elected(leader, partition.isr) if leader in live and leader in partition.isr else None


def elect_without(partition: PartitionImage, broker_id: int, live: BrokerIds, avoid: BrokerIds) -> Elected | None:
    """Another leader than `broker_id`, which is about to stop, and the in-sync replicas without it."""
    elected = elect(partition, live - avoid - {broker_id})
    if elected is None:
        return None
    isr = tuple(replica for replica in partition.isr if replica in live and replica != broker_id)
    return Elected(elected.leader, isr)


def led(partition: PartitionImage, elected: Elected | None) -> PartitionImage:
    """The partition once it is led so. Without a leader the in-sync replicas stay: they are who may lead next."""
    if elected is None:
        elected = Elected(NO_LEADER, partition.isr)
    return replace(
        partition,
        leader=elected.leader,
        isr=elected.isr,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        recovering=partition.recovering or elected.unclean,
    )
