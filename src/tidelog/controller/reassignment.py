"""Moving partitions to other brokers (KIP-455). Pure.

A move begins by adding the new replicas to the old ones; when all replicas of the target are in sync, the old ones are
dropped. Until then it can be cancelled, which drops the new ones. `replicas` lists the target first, then what is to be
dropped, so that the target is always known: it is `replicas` without `removing`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.controller.election import Elected, elect, led
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.controller.image import BrokerIds, PartitionImage

    ObserversOf = Callable[[Sequence[int]], tuple[int, ...]]


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.removing)


def origin_of(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def check_target(target: Sequence[int], live: BrokerIds, origin: Sequence[int], observers: Sequence[int]) -> None:
    """Refuses a target that no partition can have. A broker of the old replicas may be away."""
    problem = None
    if not target:
        problem = "it is empty"
    elif len(set(target)) < len(target):
        problem = "it names a broker twice"
    elif unknown := [broker for broker in target if broker not in live and broker not in origin]:
        problem = f"these brokers are not there: {unknown}"
    elif all(replica in observers for replica in target):
        problem = "all its brokers are in racks of observers, and none could lead"
    if problem:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{list(target)} cannot be a partition's replicas: {problem}"
        )


def begin(
    partition: PartitionImage, target: Sequence[int], live: BrokerIds, observers_of: ObserversOf
) -> PartitionImage | None:
    """The partition as the move begins; None if it is there, or on the way. Another move is replaced by this one."""
    origin = origin_of(partition)
    check_target(target, live, origin, observers_of(target))
    if tuple(target) == target_of(partition):
        return None
    replicas = (*target, *(replica for replica in origin if replica not in target))
    return _with_replicas(
        replace(
            partition,
            adding=tuple(replica for replica in target if replica not in origin),
            removing=tuple(replica for replica in origin if replica not in target),
            observers=observers_of(replicas),
        ),
        replicas,
        live,
    )


def cancel(partition: PartitionImage, live: BrokerIds, observers_of: ObserversOf) -> PartitionImage:
    """The partition back on the brokers that it was to leave."""
    if not partition.reassigning:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    origin = origin_of(partition)
    return _with_replicas(replace(partition, adding=(), removing=(), observers=observers_of(origin)), origin, live)


def completed(partition: PartitionImage, live: BrokerIds) -> PartitionImage | None:
    """The partition once the move is done; None while it is not, or nothing moves."""
    if not partition.reassigning:
        return None
    target = target_of(partition)
    if any(replica not in partition.isr and replica not in partition.observers for replica in target):
        return None
    if not any(replica in partition.isr and replica in live for replica in target):
        return None
    observers = tuple(replica for replica in partition.observers if replica in target)
    return _with_replicas(replace(partition, adding=(), removing=(), observers=observers), target, live)


def _with_replicas(partition: PartitionImage, replicas: tuple[int, ...], live: BrokerIds) -> PartitionImage:
    """The partition on these replicas, led by one of them. Raises if none of them has its records."""
    isr = tuple(replica for replica in partition.isr if replica in replicas and replica not in partition.observers)
    if not isr:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of {list(replicas)} is in sync: the partition's records would be lost",
        )
    trimmed = replace(partition, replicas=replicas, isr=isr)
    if partition.leader in isr:
        return led(trimmed, Elected(partition.leader, isr))
    elected = elect(trimmed, live)
    return led(trimmed, elected)
