"""A broker that stops, or is killed, and comes back: its groups are as they were, and go on from their commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from members import AIOKAFKA, CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON
from raw_members import RawMember
from streams import Stream, at_least_once, committed_positions, exactly_once, positions_reach

from tidelog.errors import ErrorCode
from tidelog.testing import eventually

if TYPE_CHECKING:
    from group_fixtures import GroupBroker, MakeGroup, StartGroupBroker
    from members import Group

pytest_plugins = ["group_fixtures"]

EACH = 10

# Longer than any restart takes, so that nobody is thrown out for it.
PATIENT = {
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.max.session.timeout.ms": "60000",
}
CLASSIC = ("--session-ms=60000", "--assignor=range")


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_groups_outlive_their_broker(own_group_broker: StartGroupBroker, make_group: MakeGroup, ending: str) -> None:
    broker = own_group_broker(PATIENT)
    stream = Stream(broker.bootstrap)
    classic, newer = (make_group(partitions=6, broker=broker) for _ in range(2))
    for kind in (CONFLUENT, KAFKA_PYTHON, AIOKAFKA):
        classic.join(kind, *CLASSIC)
    newer.join(CONFLUENT_CONSUMER)
    newer.join(CONFLUENT_CONSUMER)
    for group in (classic, newer):
        group.settle()
        exactly_once(group, stream.send(EACH, group.wanted))
    changes = [count_changes(group) for group in (classic, newer)]

    end(broker, ending)
    broker.start()
    for group in (classic, newer):
        exactly_once(group, stream.send(EACH, group.wanted))
        group.settle()
        positions_reach(group, stream, broker.bootstrap)

    assert [count_changes(group) for group in (classic, newer)] == changes, "the restart made the groups rebalance"


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_members_leave_while_the_broker_is_away(
    own_group_broker: StartGroupBroker, make_group: MakeGroup, ending: str
) -> None:
    """Whoever takes over later starts at the commits, and nobody else's records are lost or repeated."""
    broker = own_group_broker()
    stream = Stream(broker.bootstrap)
    group = make_group(partitions=4, broker=broker)
    first = group.join(KAFKA_PYTHON, "--assignor=range")
    second = group.join(CONFLUENT, "--assignor=range")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    stream.send(EACH, group.wanted)
    end(broker, ending)
    first.kill()
    second.kill()
    broker.start()
    held = committed_positions(broker.bootstrap, group.name, group.wanted)
    assert all(EACH <= position <= 2 * EACH for position in held.values()), held
    group.join(AIOKAFKA, "--assignor=range")
    group.join(CONFLUENT, "--assignor=range")
    at_least_once(group, stream.sent)
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    positions_reach(group, stream, broker.bootstrap)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_in_the_middle_of_a_rebalance(
    own_group_broker: StartGroupBroker, make_group: MakeGroup, ending: str
) -> None:
    broker = own_group_broker()
    stream = Stream(broker.bootstrap)
    group = make_group(partitions=6, broker=broker)
    group.join(CONFLUENT, "--assignor=range")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    joining = [group.join(CONFLUENT, "--assignor=range") for _ in range(2)]
    group.wait_for(lambda: any(member.events("owns") for member in joining), "a newcomer to be given partitions")
    end(broker, ending)
    broker.start()
    group.settle()
    at_least_once(group, stream.send(EACH, group.wanted))
    positions_reach(group, stream, broker.bootstrap)


def end(broker: GroupBroker, how: str) -> None:
    if how == "kill":
        broker.kill()
    else:
        broker.stop()


def count_changes(group: Group) -> list[int]:
    """How often each member was given partitions or had to give some up."""
    return [len(member.events("owns")) for member in group.members]


def test_a_member_that_waits_for_others_is_sent_elsewhere_when_the_broker_stops(
    own_group_broker: StartGroupBroker,
) -> None:
    """At once: the stop need not wait for it, and it need not find out by itself."""
    broker = own_group_broker({"group.initial.rebalance.delay.ms": "60000"})
    with RawMember(broker.bootstrap, "waiting") as member, RawMember(broker.bootstrap, "waiting") as onlooker:
        member.find_coordinator()
        assert member.introduce() == ErrorCode.MEMBER_ID_REQUIRED
        joining = member.send_join()
        eventually(lambda: onlooker.comrades() == 1, "the member to be waiting", within_s=30)
        assert broker.stop() == 0
        assert member.receive_join(joining).error_code == ErrorCode.NOT_COORDINATOR
