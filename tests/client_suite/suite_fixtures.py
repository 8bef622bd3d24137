"""The fixture of the client suite: what a test runs against, started once for all tests of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from suite_targets import TARGETS, Target

from tidelog.client import connection
from tidelog.client.versions import choose_version
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.wire.declare import Message

# The newest versions that librdkafka itself asks for. The mock offers newer ones too, but hangs up on JoinGroup 6 and
# SyncGroup 4, and answers LeaveGroup 4 with what we do not take.
GROUPS_OF_THE_MOCK: dict[type[Message], int] = {
    JoinGroupRequest: 5,
    SyncGroupRequest: 3,
    HeartbeatRequest: 3,
    LeaveGroupRequest: 1,
}


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Leave it running, and use topics of your own (`topic`)."""
    yield from TARGETS[request.param](tmp_path_factory.mktemp(f"suite-{request.param}"))


@pytest.fixture
def group_target(target: Target, monkeypatch: pytest.MonkeyPatch) -> Target:
    """`target`, spoken to about groups in versions that it understands."""

    def chosen(offered: Mapping[int, tuple[int, int]], request: type[Message], limit: int | None = None) -> int:
        return choose_version(offered, request, GROUPS_OF_THE_MOCK.get(request, limit))

    if not target.real:
        monkeypatch.setattr(connection, "choose_version", chosen)
    return target
