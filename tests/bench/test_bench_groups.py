"""The bench of groups works from end to end. What it measures here means nothing."""

from __future__ import annotations

import pytest

from bench import groups

FEW = groups.Amounts(shapes=((5, 1), (2, 5)), seconds=1.0, rebalance_members=5, trials=1)


@pytest.mark.parametrize("protocol", groups.PROTOCOLS)
def test_a_few_groups_are_kept_alive_and_rebalanced(protocol: str) -> None:
    rows = {row.name: row for row in groups.rows(FEW, [protocol])}

    assert rows[f"5 groups of 1, {protocol}: missed sessions"].measured == 0
    assert rows[f"2 groups of 5, {protocol}: missed sessions"].measured == 0
    assert rows[f"rebalance of 5 members, {protocol}: all ask at once"].measured > 0
    assert rows[f"rebalance of 5 members, {protocol}: by heartbeats"].measured > 0
