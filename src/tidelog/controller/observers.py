"""Observers: replicas that follow without being waited for. Pure.

A topic's `tidelog.observer.racks` names the racks whose replicas are observers: they copy the log, consumers of their
rack may read from them, but they never join the in-sync replicas and never lead. The replication factor counts them: of
a topic that is placed automatically, one replica goes to each observer rack and the others go elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidelog.controller.placement import Assignment, place
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def observers_among(
    replicas: Sequence[int],
    racks: Mapping[int, str | None],
    observer_racks: Collection[str],
    *,
    isr: Collection[int] = (),
) -> tuple[int, ...]:
    """The replicas that are observers. `racks` knows the live brokers; whoever is away is neither led nor waited for.

    Should all in-sync replicas be in observer racks, because the topic's setting changed, they go on as they are until
    another one is in sync: a partition is not taken away from its clients by a setting.
    """
    if not observer_racks:
        return ()
    named = tuple(replica for replica in replicas if racks.get(replica) in observer_racks)
    if isr and all(replica in named for replica in isr):
        return tuple(replica for replica in named if replica not in isr)
    return named


def place_with_observers(
    brokers: Sequence[tuple[int, str | None]],
    partitions: int,
    replication_factor: int,
    observer_racks: Collection[str],
    *,
    start: int,
    first_partition: int = 0,
) -> Assignment:
    """As `placement.place`, with one observer at the end of each partition's replicas for every observer rack."""
    if not observer_racks:
        return place(brokers, partitions, replication_factor, start=start, first_partition=first_partition)
    watching: defaultdict[str, list[int]] = defaultdict(list)
    regular = []
    for broker_id, rack in sorted(brokers, key=lambda broker: broker[0]):
        if rack is not None and rack in observer_racks:
            watching[rack].append(broker_id)
        else:
            regular.append((broker_id, rack))
    empty = sorted(set(observer_racks) - set(watching))
    if empty:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"tidelog.observer.racks names racks in which no broker is: {', '.join(empty)}"
        )
    if replication_factor <= len(watching):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"of {replication_factor} replicas {len(watching)} would be observers, and none could lead: "
            "ask for more replicas or name fewer racks in tidelog.observer.racks",
        )
    placed = place(
        regular, partitions, replication_factor - len(watching), start=start, first_partition=first_partition
    )
    return tuple(
        (*replicas, *(watching[rack][(start + number) % len(watching[rack])] for rack in sorted(watching)))
        for number, replicas in enumerate(placed, first_partition)
    )
