"""Commits that nobody needs any more are forgotten, and with the last of them the group."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from group_topics import create_topic
from raw_members import RawMember
from streams import committed_positions

from tidelog.errors import ErrorCode
from tidelog.testing import eventually

if TYPE_CHECKING:
    from group_fixtures import GroupBroker, StartGroupBroker

pytest_plugins = ["group_fixtures"]

OFTEN = {"offsets.retention.check.interval.ms": "100"}
WITHIN_S = 60.0


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_commit_is_forgotten_when_its_time_is_over(own_group_broker: StartGroupBroker, restart: bool) -> None:
    """The time of the broker is counted in minutes; one that comes with the commit may be short."""
    broker = own_group_broker(OFTEN)
    topic = create_topic(broker.bootstrap, f"topic-{uuid.uuid4().hex[:12]}", 1)
    with RawMember(broker.bootstrap, "short", topic) as short, RawMember(broker.bootstrap, "long", topic) as long:
        short.find_coordinator()
        assert short.commit(7, retention_ms=1) is ErrorCode.NONE
        assert long.commit(8) is ErrorCode.NONE
    if restart:
        broker.stop()
        broker.start()

    eventually(lambda: not positions(broker, "short", topic), "the commit to be forgotten", within_s=WITHIN_S)
    assert positions(broker, "long", topic) == {(topic, 0): 8}
    with RawMember(broker.bootstrap, "short") as short:
        eventually(lambda: short.listed() == {"long"}, "the group to be forgotten", within_s=WITHIN_S)


def positions(broker: GroupBroker, group: str, topic: str) -> dict[tuple[str, int], int]:
    return committed_positions(broker.bootstrap, group, [(topic, 0)])
