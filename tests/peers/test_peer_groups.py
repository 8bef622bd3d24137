"""Groups of Java members, in both protocols and in one group with others, and Java's view of groups from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from drivers import java_command_of, java_peer
from group_topics import create_topic
from members import AIOKAFKA, CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON, TIDELOG, TIDELOG_CONSUMER, Kind
from streams import Stream, at_least_once, exactly_once, positions_reach

if TYPE_CHECKING:
    from drivers import CommandPeer
    from group_fixtures import GroupBroker, MakeGroup, StartGroupBroker
    from members import Group, Member

pytestmark = pytest.mark.peers
pytest_plugins = ["group_fixtures"]

EACH = 10


@dataclass(frozen=True, slots=True)
class JavaKind(Kind):
    def command(self) -> list[str]:
        return [*java_command_of("subscribe"), "--protocol", self.protocol]


JAVA = JavaKind("java")
JAVA_CONSUMER = JavaKind("java", "consumer")

GROUPS: dict[str, tuple[Kind, Kind, Kind]] = {
    "java": (JAVA, JAVA, JAVA),
    "java-consumer": (JAVA_CONSUMER, JAVA_CONSUMER, JAVA_CONSUMER),
    "all-classic": (KAFKA_PYTHON, JAVA, AIOKAFKA),
    "java-upgrades": (JAVA, JAVA_CONSUMER, JAVA_CONSUMER),
    "java-downgrades": (JAVA_CONSUMER, CONFLUENT_CONSUMER, JAVA),
    "upgrade-among-others": (CONFLUENT, JAVA_CONSUMER, KAFKA_PYTHON),
    # The first of a classic group divides the partitions.
    "tidelog-leads-java": (TIDELOG, JAVA, KAFKA_PYTHON),
    "java-leads-tidelog": (JAVA, TIDELOG, CONFLUENT),
    "all-consumer": (CONFLUENT_CONSUMER, JAVA_CONSUMER, TIDELOG_CONSUMER),
    "tidelog-upgrades-java": (JAVA, TIDELOG_CONSUMER, JAVA_CONSUMER),
    "tidelog-downgrades-java": (TIDELOG_CONSUMER, JAVA_CONSUMER, TIDELOG),
}


def kinds_named(kinds: tuple[Kind, ...]) -> str:
    return ",".join(map(str, kinds))


@pytest.fixture(scope="module")
def java() -> CommandPeer:
    return java_peer()


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


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_java_groups_outlive_their_broker(
    own_group_broker: StartGroupBroker, make_group: MakeGroup, ending: str
) -> None:
    long = {"group.consumer.session.timeout.ms": "60000", "group.consumer.max.session.timeout.ms": "60000"}
    broker = own_group_broker(long)
    stream = Stream(broker.bootstrap)
    classic, newer = (make_group(partitions=4, broker=broker) for _ in range(2))
    for group, kind in ((classic, JAVA), (newer, JAVA_CONSUMER)):
        for _ in range(2):
            group.join(kind, "--session-ms=60000")
        group.settle()
        exactly_once(group, stream.send(EACH, group.wanted))
    if ending == "stop":
        broker.stop()
    else:
        broker.kill()
    broker.start()
    for group in (classic, newer):
        exactly_once(group, stream.send(EACH, group.wanted))
        group.settle()
        exactly_once(group, {place for place in stream.sent if place[:2] in group.wanted})
        positions_reach(group, stream, broker.bootstrap)


@pytest.mark.parametrize(
    ("other", "other_newer"), [(CONFLUENT, CONFLUENT_CONSUMER), (TIDELOG, TIDELOG_CONSUMER)], ids=str
)
def test_a_group_is_upgraded_and_downgraded_member_by_member(
    group_broker: GroupBroker,
    make_group: MakeGroup,
    stream: Stream,
    java: CommandPeer,
    other: Kind,
    other_newer: Kind,
) -> None:
    """Each member is replaced in turn, so that the group changes its protocol while it works."""
    group = make_group(partitions=4)
    at = group_broker.bootstrap
    for _ in range(2):
        enter(group, stream, JAVA)
    assert java.admin(at, "describe-group", group=group.name)["type"] == "Classic"

    for old, kind in zip(list(group.members), (JAVA_CONSUMER, other_newer), strict=True):
        enter(group, stream, kind)
        old.leave()
        group.settle()
        exactly_once(group, stream.send(EACH, group.wanted))
    description = java.admin(at, "describe-group", group=group.name)
    assert description["type"] == "Consumer"
    assert {member["upgraded"] for member in description["members"]} == {True}

    for old, kind in zip(group.running, (JAVA, other), strict=True):
        enter(group, stream, kind)
        old.leave()
        group.settle()
        exactly_once(group, stream.send(EACH, group.wanted))
    assert java.admin(at, "describe-group", group=group.name)["type"] == "Classic"
    exactly_once(group, stream.sent)
    positions_reach(group, stream, at)


@pytest.mark.parametrize("kind", [JAVA, JAVA_CONSUMER], ids=str)
def test_a_static_java_member_restarts_without_a_rebalance(make_group: MakeGroup, stream: Stream, kind: Kind) -> None:
    group = make_group(partitions=4)
    staying = group.join(kind, "--instance=one", "--session-ms=60000")
    group.settle()
    restarting = group.join(kind, "--instance=two", "--session-ms=60000")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    share, changes = restarting.owned(), len(staying.events("owns"))

    restarting.leave()
    again = group.join(kind, "--instance=two", "--session-ms=60000")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    assert again.owned() == share
    assert len(staying.events("owns")) == changes, "the other member was bothered"


@pytest.mark.parametrize(
    "kinds", [(JAVA, JAVA, CONFLUENT), (JAVA, TIDELOG, TIDELOG), (TIDELOG, JAVA, CONFLUENT)], ids=kinds_named
)
def test_java_cooperates_incrementally(make_group: MakeGroup, stream: Stream, kinds: tuple[Kind, Kind, Kind]) -> None:
    group = make_group(partitions=6)
    first = group.join(kinds[0], "--assignor=cooperative-sticky")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    second, third = (group.join(kind, "--assignor=cooperative-sticky") for kind in kinds[1:])
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    assert [len(member.owned()) for member in (first, second, third)] == [2, 2, 2]
    kept = [set(map(tuple, change["partitions"])) for change in first.events("owns") if change["partitions"]]
    assert set.intersection(*kept) == first.owned(), "what it kept was never taken from it"


@pytest.mark.parametrize("kind", [JAVA, JAVA_CONSUMER], ids=str)
def test_a_java_pattern_finds_a_new_topic(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=2)
    ((topic, _), _) = sorted(group.wanted)
    prefix = topic.removesuffix("-0")
    group.join(kind, "--metadata-ms=500", pattern=f"{prefix}-[0-9]+")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    create_topic(group_broker.bootstrap, f"{prefix}-1", 2)
    group.wanted |= {(f"{prefix}-1", 0), (f"{prefix}-1", 1)}
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))


@pytest.mark.parametrize("kind", [JAVA, JAVA_CONSUMER], ids=str)
def test_java_looks_at_a_group_and_changes_it(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, java: CommandPeer, kind: Kind
) -> None:
    at = group_broker.bootstrap
    group = make_group(partitions=2)
    ((topic, _), _) = sorted(group.wanted)
    member = group.join(kind, "--assignor=range")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    described = java.admin(at, "describe-group", group=group.name)
    assert (described["state"], described["assignor"]) == ("Stable", "range")
    (only,) = described["members"]
    assert sorted(only["assignment"]) == [[topic, 0], [topic, 1]]
    assert (only["client"], only["host"]) == ("tidelog-peer-java", "/127.0.0.1")
    listing = java.admin(at, "list-groups")["groups"][group.name]
    assert listing == {"type": kind.protocol.capitalize(), "state": "Stable", "protocol": "consumer"}
    assert java.admin(at, "delete-group", group=group.name) == {"error": "NON_EMPTY_GROUP"}
    assert java.admin(at, "alter-group-offsets", group=group.name, set={f"{topic}:0": 1}) == {
        "error": "UNKNOWN_MEMBER_ID"
    }
    assert java.admin(at, "delete-group-offsets", group=group.name, place=f"{topic}:0") == {
        "error": "GROUP_SUBSCRIBED_TO_TOPIC"
    }

    member.leave()
    assert java.admin(at, "describe-group", group=group.name)["state"] == "Empty"
    assert java.admin(at, "alter-group-offsets", group=group.name, set={f"{topic}:0": 1}) == {}
    assert java.admin(at, "delete-group-offsets", group=group.name, place=f"{topic}:1") == {}
    assert java.admin(at, "list-group-offsets", group=group.name) == {"positions": [[topic, 0, 1]]}
    assert java.admin(at, "delete-group", group=group.name) == {}
    assert java.admin(at, "delete-group", group=group.name) == {"error": "GROUP_ID_NOT_FOUND"}
    assert group.name not in java.admin(at, "list-groups")["groups"]


def enter(group: Group, stream: Stream, kind: Kind) -> Member:
    """A member joins, and the group goes on as if nothing had happened."""
    member = group.join(kind, *(["--assignor=range"] if kind.protocol == "classic" else []))
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    return member
