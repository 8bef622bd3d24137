"""Where the replicas of new partitions go. Pure.

Round robin over the brokers, as Kafka does it: the first replica walks over the brokers from a start, the others
follow at a shift that grows with every full round, so that the brokers that back up one broker differ. With racks, the
brokers are first interleaved rack by rack, so that neighbours in the walk are in different racks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

Assignment = tuple[tuple[int, ...], ...]
"""The replicas of each partition, the preferred leader first."""


def place(
    brokers: Sequence[tuple[int, str | None]],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    first_partition: int = 0,
) -> Assignment:
    if replication_factor > len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers; there are {len(brokers)}",
        )
    ring = interleave_racks(brokers)
    return tuple(
        _replicas(ring, partition, replication_factor, start)
        for partition in range(first_partition, first_partition + partitions)
    )


def _replicas(ring: Sequence[int], partition: int, count: int, start: int) -> tuple[int, ...]:
    size = len(ring)
    first = (partition + start) % size
    round_shift = (partition // size) % max(size - 1, 1)
    chosen = [ring[first]]
    for replica in range(count - 1):
        step = 1 + (round_shift + replica) % (size - 1)
        chosen.append(ring[(first + step) % size])
    return tuple(chosen)


def interleave_racks(brokers: Sequence[tuple[int, str | None]]) -> list[int]:
    """Broker ids in an order in which neighbours are in different racks where that can be had."""
    racks: defaultdict[str, list[int]] = defaultdict(list)
    for broker_id, rack in sorted(brokers, key=lambda broker: broker[0]):
        racks[rack or ""].append(broker_id)
    columns = [racks[rack] for rack in sorted(racks)]
    deepest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(deepest) for column in columns if row < len(column)]
