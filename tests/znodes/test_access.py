"""Who may do what with which node."""

from __future__ import annotations

import pytest

from tidelog.znodes import paths
from tidelog.znodes.access import Access, access_to


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/", Access.READABLE),
        (paths.CONTROLLER, Access.READABLE),
        (paths.partition_state("t", 0), Access.READABLE),
        (paths.CONFIG_TOPICS, Access.READABLE),
        (paths.CONFIG_USERS, Access.SECRET),
        (f"{paths.CONFIG_USERS}/alice", Access.SECRET),
        (f"{paths.CONFIG_USERS}-of-another-kind", Access.READABLE),
        (paths.broker_config(None), Access.SECRET),
        (paths.CLUSTER_SECRET, Access.SECRET),
        (paths.CONSUMERS, Access.OPEN),
        (paths.group("g"), Access.READABLE),
    ],
)
def test_access(path: str, access: Access) -> None:
    assert access_to(path, protect=True) is access
    assert access_to(path, protect=False) is Access.OPEN
