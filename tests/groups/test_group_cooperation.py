"""Incremental rebalancing: members keep reading what they keep, and give up only what moves to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from members import CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON, TIDELOG, TIDELOG_CONSUMER, Kind, places
from streams import Stream, exactly_once, positions_reach

if TYPE_CHECKING:
    from group_fixtures import GroupBroker, MakeGroup
    from members import Member, Partition

pytest_plugins = ["group_fixtures"]

EACH = 10
COOPERATIVE = {
    "confluent": (CONFLUENT, "cooperative-sticky"),
    "kafka-python": (KAFKA_PYTHON, "cooperative-sticky"),
    "tidelog": (TIDELOG, "cooperative-sticky"),
    "tidelog-consumer-uniform": (TIDELOG_CONSUMER, "uniform"),
    "tidelog-consumer-range": (TIDELOG_CONSUMER, "range"),
    "confluent-consumer-uniform": (CONFLUENT_CONSUMER, "uniform"),
    "confluent-consumer-range": (CONFLUENT_CONSUMER, "range"),
}


@pytest.mark.parametrize(("kind", "assignor"), COOPERATIVE.values(), ids=COOPERATIVE)
def test_only_what_moves_is_given_up(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind, assignor: str
) -> None:
    group = make_group(partitions=6)
    first = group.join(kind, f"--assignor={assignor}")
    group.settle()
    second = group.join(kind, f"--assignor={assignor}")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    assert len(first.owned()) == len(second.owned()) == 3
    assert given_up(first) == second.owned()

    third = group.join(kind, f"--assignor={assignor}")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    assert [len(member.owned()) for member in group.members] == [2, 2, 2]
    if assignor != "range":
        # Ranges are contiguous, so that more may have to move than the newcomer gets.
        assert given_up(first) | given_up(second) >= third.owned()
        assert len(given_up(first)) + len(given_up(second)) == 3 + 2

    third.leave()
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    exactly_once(group, stream.sent)
    positions_reach(group, stream, group_broker.bootstrap)


@pytest.mark.parametrize(
    "kinds",
    [(TIDELOG, CONFLUENT, KAFKA_PYTHON), (CONFLUENT, TIDELOG, TIDELOG), (KAFKA_PYTHON, TIDELOG, CONFLUENT)],
    ids=["tidelog-leads", "confluent-leads", "kafka-python-leads"],
)
def test_clients_of_different_make_cooperate(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kinds: tuple[Kind, Kind, Kind]
) -> None:
    group = make_group(partitions=6)
    for kind in kinds:
        group.join(kind, "--assignor=cooperative-sticky")
        group.settle()
        exactly_once(group, stream.send(EACH, group.wanted))
    first = group.members[0]
    assert [len(member.owned()) for member in group.members] == [2, 2, 2]
    first.leave()
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    exactly_once(group, stream.sent)
    positions_reach(group, stream, group_broker.bootstrap)


def given_up(member: Member) -> set[Partition]:
    """Everything that was ever taken from it."""
    taken: set[Partition] = set()
    owned: set[Partition] = set()
    for change in member.events("owns"):
        now = places(change["partitions"])
        taken |= owned - now
        owned = now
    return taken
