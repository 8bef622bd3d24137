"""The bench of transactions works from end to end. What it measures here means nothing."""

from __future__ import annotations

from bench import transactions


def test_records_are_written_plainly_and_in_transactions() -> None:
    few = transactions.Amounts(trials=1, stream_s=0.3, paced_s=0.3, small_s=0.2, producers=2)

    rows = {row.name: row for row in transactions.rows(few)}

    assert all(row.measured > 0 for row in rows.values())
    assert len(rows) == 7
    assert sum(row.ratio is not None for row in rows.values()) == 2
