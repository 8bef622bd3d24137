"""The bench of pipelines works from end to end, with Spark's connector and without. What it measures means nothing."""

from __future__ import annotations

import pytest

from bench import pipelines
from bench.spark_peer import connector_jars

pytestmark = pytest.mark.timeout(1200)

FEW = pipelines.Amounts(trials=1, rows=400, waits=3, starts=1)


def test_ours_are_measured_alone() -> None:
    rows = list(pipelines.rows(FEW, None, sizes=[100], groups=["rates"]))

    assert all(row.measured > 0 for row in rows)
    # Only the exactly-once sink has something to be compared with: the other one.
    assert [row.peer for row in rows if row.ratio is not None] == ["at least once"]


@pytest.mark.peers
def test_ours_are_measured_beside_sparks() -> None:
    rows = list(pipelines.rows(FEW, connector_jars(), sizes=[100]))

    assert len(rows) == 13
    assert all(row.measured > 0 and row.ratio is not None for row in rows)
