"""Balances partitions over members that subscribe to different topics.

Everyone keeps what it has; what is free goes to the least loaded subscriber; then partitions move to subscribers that
have at least two fewer, until there are none. Topics that few may read are dealt out first, since they leave the least
choice.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic

from tidelog.assign.subscriber import Assignment, Subscriber, Topic, subscribers_by_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUNDS_MAX = 100
"""Every move improves the balance, so moving ends by itself; where it would take very long, good is good enough."""


def balance_uneven(
    members: Mapping[str, Subscriber[Topic]], order: list[str], partitions: Mapping[Topic, int]
) -> Assignment[Topic]:
    table = _Table(members, order, partitions)
    table.deal_out_free()
    for _round in range(ROUNDS_MAX):
        moves = [table.level(topic) for topic in table.topics]
        if not any(moves):
            break
    return table.assignment()


class _Table(Generic[Topic]):
    """Who holds what, topic by topic. Members are numbered by their place in the order."""

    def __init__(
        self, members: Mapping[str, Subscriber[Topic]], order: list[str], partitions: Mapping[Topic, int]
    ) -> None:
        self._order = order
        self._partitions: Mapping[Topic, int] = partitions
        places = {member_id: place for place, member_id in enumerate(order)}
        by_topic = subscribers_by_topic(members, order, partitions)
        self._subscribers: dict[Topic, list[int]] = {
            topic: [places[member_id] for member_id in subscribers] for topic, subscribers in by_topic.items()
        }
        self.topics: list[Topic] = sorted(by_topic, key=lambda topic: (len(by_topic[topic]), topic))
        self._load = [0] * len(order)
        self._held: dict[Topic, dict[int, list[int]]] = {topic: {} for topic in self.topics}
        """By topic and member, what it kept first and what it was given last: the last is taken away first."""
        for place, member_id in enumerate(order):
            self._keep(place, members[member_id])

    def _keep(self, place: int, member: Subscriber[Topic]) -> None:
        for topic, numbers in member.owned.items():
            if topic in member.topics and topic in self._held:
                kept = sorted(number for number in numbers if 0 <= number < self._partitions[topic])
                if kept:
                    self._held[topic][place] = kept
                    self._load[place] += len(kept)

    def deal_out_free(self) -> None:
        for topic in self.topics:
            taken = {number for numbers in self._held[topic].values() for number in numbers}
            if len(taken) == self._partitions[topic]:
                continue
            least = [(self._load[place], place) for place in self._subscribers[topic]]
            heapq.heapify(least)
            for number in range(self._partitions[topic]):
                if number not in taken:
                    load, place = least[0]
                    heapq.heapreplace(least, (load + 1, place))
                    self._held[topic].setdefault(place, []).append(number)
                    self._load[place] += 1

    def level(self, topic: Topic) -> bool:
        """Moves partitions of one topic from its most to its least loaded subscribers; whether any was moved."""
        held, load = self._held[topic], self._load
        most = [(-load[place], place) for place, numbers in held.items() if numbers]
        least = [(load[place], place) for place in self._subscribers[topic]]
        heapq.heapify(most)
        heapq.heapify(least)
        moved = False
        while most:
            giver, taker = most[0][1], least[0][1]
            if -most[0][0] != load[giver]:
                heapq.heapreplace(most, (-load[giver], giver))
            elif least[0][0] != load[taker]:
                heapq.heapreplace(least, (load[taker], taker))
            elif load[giver] - load[taker] < 2:
                break
            else:
                held.setdefault(taker, []).append(held[giver].pop())
                load[giver] -= 1
                load[taker] += 1
                if not held[giver]:
                    heapq.heappop(most)
                moved = True
        return moved

    def assignment(self) -> Assignment[Topic]:
        assignment: Assignment[Topic] = {member_id: {} for member_id in self._order}
        for topic, held in self._held.items():
            for place, numbers in held.items():
                if numbers:
                    assignment[self._order[place]][topic] = sorted(numbers)
        return assignment
