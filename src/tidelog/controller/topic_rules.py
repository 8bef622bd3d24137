"""What a topic may be called and how it may be made. Pure: the same checks serve a dry run and the real thing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.controller.observers import observers_among, place_with_observers
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.controller.image import ClusterImage, TopicImage
    from tidelog.controller.placement import Assignment

NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")

BROKER_DEFAULT = -1

NEW_PARTITIONS_MAX = 10_000
"""How many one request may add to a topic: planning and creating them takes memory and time in proportion."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it was asked for."""

    name: str
    partitions: int
    replication_factor: int
    assignment: Mapping[int, Sequence[int]]
    """Replicas by partition; empty to have them placed."""
    settings: Mapping[str, str]


def check_name(name: str) -> None:
    """Kafka's rule: what can be a directory name and a metric name."""
    problem = None
    if not name:
        problem = "it is empty"
    elif name in {".", ".."}:
        problem = "it is a directory reference"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"it is longer than {NAME_LENGTH_MAX} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = "only ASCII letters, digits, '.', '_' and '-' may be used"
    if problem:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be a topic name: {problem}")


def check_free(name: str, image: ClusterImage) -> None:
    """Refuses a name that is taken, or that differs from a taken one only in '.' against '_'."""
    if name in image.topics:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    if "." in name or "_" in name:
        folded = name.replace(".", "_")
        for other in image.topics:
            if other.replace(".", "_") == folded:
                raise BrokerError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"topic {name!r} collides with {other!r}: '.' and '_' count as the same",
                )


def plan_assignment(
    spec: TopicSpec,
    image: ClusterImage,
    *,
    default_partitions: int,
    default_replication_factor: int,
    start: int,
    observer_racks: Sequence[str] = (),
) -> Assignment:
    """The replicas of each partition of a topic to be created."""
    if spec.assignment:
        if spec.partitions != BROKER_DEFAULT or spec.replication_factor != BROKER_DEFAULT:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "give either a replica assignment or a number of partitions and a replication factor, not both",
            )
        return _explicit_assignment(spec.assignment, image, observer_racks, first_partition=0)
    partitions = default_partitions if spec.partitions == BROKER_DEFAULT else spec.partitions
    factor = default_replication_factor if spec.replication_factor == BROKER_DEFAULT else spec.replication_factor
    if partitions <= 0:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least one partition, not {partitions}")
    if factor <= 0:
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor} must be at least 1")
    _check_amount(partitions)
    return place_with_observers(image.racks(), partitions, factor, observer_racks, start=start)


def plan_growth(
    topic: TopicImage,
    count: int,
    explicit: Sequence[Sequence[int]] | None,
    image: ClusterImage,
    *,
    observer_racks: Sequence[str] = (),
) -> Assignment:
    """The replicas of the partitions to be added, so that the topic has `count` of them."""
    have = len(topic.partitions)
    if count <= have:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {have} partitions; their number can only grow, {count} was asked for",
        )
    _check_amount(count - have)
    if explicit is not None:
        if len(explicit) != count - have:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count - have} partitions are added, but replicas were given for {len(explicit)}",
            )
        return _explicit_assignment(dict(enumerate(explicit, have)), image, observer_racks, first_partition=have)
    factor = len(topic.partitions[0].replicas)
    start = topic.partitions[0].replicas[0]
    return place_with_observers(image.racks(), count - have, factor, observer_racks, start=start, first_partition=have)


def _check_amount(added: int) -> None:
    if added > NEW_PARTITIONS_MAX:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{added} new partitions are too many at once: add up to {NEW_PARTITIONS_MAX}, then more",
        )


def _explicit_assignment(
    assignment: Mapping[int, Sequence[int]],
    image: ClusterImage,
    observer_racks: Sequence[str],
    *,
    first_partition: int,
) -> Assignment:
    racks = dict(image.racks())
    expected = range(first_partition, first_partition + len(assignment))
    if sorted(assignment) != list(expected):
        raise _bad_assignment(f"partitions must be numbered {expected.start} to {expected.stop - 1} without gaps")
    factor = len(assignment[first_partition])
    for partition, replicas in assignment.items():
        if not replicas:
            raise _bad_assignment(f"partition {partition} has no replicas")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"partition {partition} names a broker twice: {list(replicas)}")
        if len(replicas) != factor:
            raise _bad_assignment("all partitions must have the same number of replicas")
        unknown = [broker for broker in replicas if broker not in image.brokers]
        if unknown:
            raise _bad_assignment(f"partition {partition} names brokers that are not there: {unknown}")
        if len(observers_among(replicas, racks, observer_racks)) == len(replicas):
            raise _bad_assignment(f"all replicas of partition {partition} would be observers, and none could lead")
    return tuple(tuple(assignment[partition]) for partition in expected)


def _bad_assignment(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
