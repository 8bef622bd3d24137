"""Commits inside transactions that are still open: they count, or not, when the transaction ends.

The log's order decides among several at one place: the last one that counts is the offset. So whatever counts for
certain, a plain commit, a deletion or a transaction's commit, overtakes all that was held before it at its place,
whichever way those transactions end. Compaction goes by the same rule, hence loading leads to the same offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

V = TypeVar("V")


class Place(NamedTuple):
    group: str
    topic: str
    partition: int


class PendingOffsets(Generic[V]):
    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, dict[int, V]]] = {}
        """By place and producer id; at each place in the log's order."""
        self._producers: dict[int, dict[Place, None]] = {}

    def __contains__(self, place: Place) -> bool:
        """Whether an open transaction may yet change the offset."""
        return place in self._groups.get(place.group, ())

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def groups(self) -> Iterator[str]:
        return iter(self._groups)

    def of_group(self, group: str) -> Iterator[Place]:
        return iter(self._groups.get(group, ()))

    def at(self, place: Place) -> tuple[V, ...]:
        """What may come to count here, in the log's order."""
        return tuple(self._groups.get(place.group, {}).get(place, {}).values())

    def hold(self, producer_id: int, place: Place, value: V) -> None:
        """A later commit of the same transaction stands for the earlier one, and later in the order."""
        held = self._groups.setdefault(place.group, {}).setdefault(place, {})
        held.pop(producer_id, None)
        held[producer_id] = value
        self._producers.setdefault(producer_id, {})[place] = None

    def overtake(self, place: Place) -> None:
        """Something that counts for certain was stored here."""
        for producer_id in list(self._groups.get(place.group, {}).get(place, {})):
            self._drop(producer_id, place)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[Place, V]]:
        """Ends the producer's transaction; gives what counts from now on."""
        counting = []
        for place in list(self._producers.get(producer_id, ())):
            held = self._groups[place.group][place]
            if committed:
                counting.append((place, held[producer_id]))
                for earlier in list(held)[: list(held).index(producer_id)]:
                    self._drop(earlier, place)
            self._drop(producer_id, place)
        return counting

    def _drop(self, producer_id: int, place: Place) -> None:
        places = self._groups[place.group]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
        if not places:
            del self._groups[place.group]
        of_producer = self._producers[producer_id]
        del of_producer[place]
        if not of_producer:
            del self._producers[producer_id]
