"""A real ZooKeeper server for all tests of a worker; each test has a root of its own on it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """Leave it running."""
    with ZooKeeperServers(tmp_path_factory.mktemp("zookeeper")) as servers:
        yield servers


@pytest.fixture
def own_root(zookeeper: ZooKeeperServers) -> str:
    """A connect string with a root that no other test uses."""
    return f"{zookeeper.connect_string}/{uuid.uuid4().hex}/root"
