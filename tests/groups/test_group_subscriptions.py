"""What members subscribe to changes: topics appear that a pattern means, topics grow, members want different ones."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from group_topics import add_partitions, create_topic
from members import CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON, KINDS, Group, Kind
from streams import Stream, exactly_once, positions_reach

if TYPE_CHECKING:
    from group_fixtures import GroupBroker, MakeGroup

pytest_plugins = ["group_fixtures"]

EACH = 10
# Classic clients look for news by themselves; members of the newer protocol are told.
LOOK_OFTEN = "--metadata-ms=500"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_pattern_finds_a_new_topic(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=2)
    ((topic, _), _) = sorted(group.wanted)
    prefix = topic.removesuffix("-0")
    group.join(kind, LOOK_OFTEN, pattern=f"{prefix}-[0-9]+")
    group.join(kind, LOOK_OFTEN, pattern=f"{prefix}-[0-9]+")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))

    create_topic(group_broker.bootstrap, f"{prefix}-other", 1)
    create_topic(group_broker.bootstrap, f"{prefix}-1", 4)
    group.wanted |= {(f"{prefix}-1", partition) for partition in range(4)}
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    exactly_once(group, stream.sent)
    positions_reach(group, stream, group_broker.bootstrap)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_added_partitions_are_divided_too(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=1)
    ((topic, _),) = group.wanted
    group.join(kind, LOOK_OFTEN)
    group.settle()
    group.join(kind, LOOK_OFTEN)
    group.settle(idle=1)
    exactly_once(group, stream.send(EACH, group.wanted))

    add_partitions(group_broker.bootstrap, topic, 4)
    group.wanted = {(topic, partition) for partition in range(4)}
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    exactly_once(group, stream.sent)


@pytest.mark.parametrize("kinds", [(CONFLUENT, KAFKA_PYTHON), (CONFLUENT_CONSUMER, CONFLUENT_CONSUMER)], ids=str)
def test_members_of_one_group_want_different_topics(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kinds: tuple[Kind, Kind]
) -> None:
    at = group_broker.bootstrap
    shared, private = make_group(partitions=4), make_group(partitions=2)
    ((shared_topic, _), *_) = shared.wanted
    ((private_topic, _), *_) = private.wanted
    group = Group(at, shared.name, [shared_topic], 4)
    shared.members = group.members
    assignor = ["--assignor=range"] if kinds[0].protocol == "classic" else []
    group.join(kinds[0], *assignor)
    group.join(kinds[1], *assignor, f"--topic={private_topic}")
    group.wanted |= private.wanted
    group.settle()

    assert private.wanted <= group.members[1].owned()
    assert len(group.members[0].owned()) >= 2
    exactly_once(group, stream.send(EACH, group.wanted))


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
def test_a_topic_that_is_not_there_yet(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=2)
    later = f"later-{uuid.uuid4().hex[:12]}"
    group.join(kind, LOOK_OFTEN, f"--topic={later}")
    group.settle()
    create_topic(group_broker.bootstrap, later, 2)
    group.wanted |= {(later, 0), (later, 1)}
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
