"""Numbered records on the topics of a group, and the judgement of what came of them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message
    from members import Group, Partition, RecordPlace

DELIVERED_WITHIN_S = 60.0


class Stream:
    """Writes to the partitions in turn, and knows where every record went."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: set[RecordPlace] = set()
        self._bootstrap = bootstrap
        self._numbers = count()

    def send(self, records: int, partitions: Iterable[Partition]) -> set[RecordPlace]:
        """So many records to each of the partitions; returns when all are delivered, with their places."""
        places: set[RecordPlace] = set()
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None or topic is None or partition is None or offset is None:
                errors.append(error)  # type: ignore[arg-type]
            else:
                places.add((topic, partition, offset))

        wanted = sorted(partitions)
        # A new producer each time knows partitions that were added meanwhile.
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                # A record that is sent again while the broker restarts must not be there twice.
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "log_level": 3,
            }
        )
        for _ in range(records):
            for topic, partition in wanted:
                producer.produce(topic, f"record {next(self._numbers)}", partition=partition, on_delivery=delivered)
        left = producer.flush(DELIVERED_WITHIN_S)
        assert not errors, errors[0]
        assert left == 0, f"{left} records were not delivered"
        self.sent |= places
        return places

    def ends(self) -> dict[Partition, int]:
        """Where the partitions that were written to end."""
        return {
            (topic, partition): max(o for t, p, o in self.sent if (t, p) == (topic, partition)) + 1
            for topic, partition in {(topic, partition) for topic, partition, _ in self.sent}
        }


def committed_positions(bootstrap: str, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """What the broker holds for the group, as a consumer that only asks sees it."""
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3})
    wanted = [TopicPartition(*place) for place in sorted(partitions)]

    def told() -> list[TopicPartition] | None:
        try:
            return asking.committed(wanted, timeout=30)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.NOT_COORDINATOR:
                return None  # it has just moved
            raise

    try:
        found = eventually(told, f"the positions of {group}", within_s=DELIVERED_WITHIN_S)
    finally:
        asking.close()
    assert all(place.error is None for place in found), found
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def exactly_once(group: Group, records: set[RecordPlace]) -> None:
    """Wait until all these records came and are committed, and see that none came twice."""

    def confirmed() -> bool:
        group.check()
        return not records - set(group.confirmed())

    group.wait_for(confirmed, f"{len(records)} records to come and be committed")
    repeated = {place: times for place, times in group.deliveries().items() if times > 1 and place in records}
    assert not repeated, f"came more than once: {repeated}\n{group.stories()}"


def at_least_once(group: Group, records: set[RecordPlace]) -> None:
    """Wait until all these records came, and see that none came again after it was committed."""

    def came() -> bool:
        group.check()
        return not records - set(group.deliveries())

    group.wait_for(came, f"{len(records)} records to come")
    twice = {place: times for place, times in group.confirmed().items() if times > 1}
    assert not twice, f"committed more than once: {twice}\n{group.stories()}"


def positions_reach(group: Group, stream: Stream, bootstrap: str) -> None:
    """Wait until the group's committed positions are the ends of its partitions."""
    ends = {place: end for place, end in stream.ends().items() if place in group.wanted}

    def reached() -> bool:
        return committed_positions(bootstrap, group.name, ends) == ends

    group.wait_for(reached, f"the commits to reach {ends}")
