"""A broker that has just come back knows nothing of the cluster until the controller tells it, and says nothing before:
clients would believe it, and take the topics for deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tidelog.testing import eventually
from tidelog.testing.cluster_view import view_of

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster_view import ClusterView

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(600)


def test_what_a_broker_says_first_is_true(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic("there", 6)
    victim = next(number for number in cluster.numbers if number != cluster.wait_for_controller())
    cluster.kill(victim)

    def first_answer() -> ClusterView | None:
        try:
            return view_of(cluster.addresses[victim])
        except OSError:
            return None

    with ThreadPoolExecutor(1) as pool:
        # Its old session still lives for seconds, and it has to wait for that: long enough to be asked too early.
        restarting = pool.submit(cluster.restart, victim)
        view = eventually(first_answer, "the broker to answer", within_s=60)
        restarting.result()
    assert view.brokers == frozenset(cluster.numbers)
    assert len(view.of("there")) == 6
