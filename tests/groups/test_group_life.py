"""Groups whose members come, go and die: every record comes, and none comes twice without need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from members import AIOKAFKA, CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON, KINDS, TIDELOG, TIDELOG_CONSUMER, Kind
from streams import Stream, at_least_once, exactly_once, positions_reach

if TYPE_CHECKING:
    from group_fixtures import GroupBroker, MakeGroup
    from members import Group, Member

pytest_plugins = ["group_fixtures"]

EACH = 10
"""Records to each partition in each act."""

GROUPS: dict[str, tuple[Kind, Kind, Kind]] = {
    **{str(kind): (kind, kind, kind) for kind in KINDS},
    "mixed-classic": (CONFLUENT, KAFKA_PYTHON, AIOKAFKA),
    "mixed-protocols": (KAFKA_PYTHON, CONFLUENT_CONSUMER, CONFLUENT),
    "tidelog-leads-others": (TIDELOG, CONFLUENT, AIOKAFKA),
    "tidelog-follows-others": (KAFKA_PYTHON, TIDELOG, TIDELOG),
    "tidelog-mixed-protocols": (TIDELOG, CONFLUENT_CONSUMER, TIDELOG_CONSUMER),
}


@pytest.mark.parametrize("kinds", GROUPS.values(), ids=GROUPS)
def test_members_come_go_and_die(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kinds: tuple[Kind, Kind, Kind]
) -> None:
    group = make_group(partitions=6)
    staying, leaving, dying = (enter(group, stream, kind) for kind in kinds)

    leaving.leave()
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    exactly_once(group, stream.sent)

    late = stream.send(EACH, group.wanted)
    dying.kill()
    at_least_once(group, late | stream.send(EACH, group.wanted))
    group.settle()
    assert staying.owned() == group.wanted
    exactly_once(group, stream.send(EACH, group.wanted))
    positions_reach(group, stream, group_broker.bootstrap)


def enter(group: Group, stream: Stream, kind: Kind) -> Member:
    """A member joins, and the group goes on as if nothing had happened."""
    member = group.join(kind, *common_assignor(kind))
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    return member


def common_assignor(kind: Kind) -> list[str]:
    """The classic assignor that all clients have."""
    return ["--assignor=range"] if kind.protocol == "classic" else []
