"""Members with a group.instance.id: they may restart without anybody noticing, and there is only one of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from members import CONFLUENT, CONFLUENT_CONSUMER, KINDS, Kind
from streams import Stream, exactly_once, positions_reach

if TYPE_CHECKING:
    from group_fixtures import GroupBroker, MakeGroup

pytest_plugins = ["group_fixtures"]

EACH = 10


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_static_member_restarts_without_a_rebalance(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=4)
    patient = ["--session-ms=60000"] if kind.protocol == "classic" else []
    staying = group.join(kind, "--instance=one", *patient)
    group.settle()
    restarting = group.join(kind, "--instance=two", *patient)
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    share, changes = restarting.owned(), len(staying.events("owns"))

    restarting.leave()
    missed = stream.send(EACH, group.wanted)
    again = group.join(kind, "--instance=two", *patient)
    group.settle()
    exactly_once(group, missed)
    exactly_once(group, stream.sent)

    assert again.owned() == share
    assert len(staying.events("owns")) == changes, "the other member was bothered"
    positions_reach(group, stream, group_broker.bootstrap)


def test_a_second_member_of_the_same_name_throws_the_first_out(make_group: MakeGroup, stream: Stream) -> None:
    group = make_group()
    first = group.join(CONFLUENT, "--instance=one")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    first.expected_to_fail = True
    second = group.join(CONFLUENT, "--instance=one")

    assert "fenced" in first.wait_for_failure().lower()
    group.wait_for(lambda: second.owned() == group.wanted, "the second to take over")
    exactly_once(group, stream.send(EACH, group.wanted))


def test_a_second_member_of_the_same_name_is_turned_away_by_the_newer_protocol(
    make_group: MakeGroup, stream: Stream
) -> None:
    """There the first is the one to stay, until it says that it leaves for a while or is not heard of any more."""
    group = make_group()
    group.join(CONFLUENT_CONSUMER, "--instance=one")
    group.settle()

    second = group.join(CONFLUENT_CONSUMER, "--instance=one")
    assert "still used by another member" in second.wait_for_failure()
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
