"""The bench of replication works from end to end. What it measures here means nothing."""

from __future__ import annotations

from bench import replication


def test_every_kind_of_topic_is_written_to_in_both_ways() -> None:
    few = replication.Amounts(trials=1, bytes=1 << 20, single_records=20)

    rows = {row.name: row for row in replication.rows(few)}

    for kind in replication.KINDS:
        assert rows[f"librdkafka produces 1024 B, {kind}"].measured > 0
        assert rows[f"one record of 100 B after the other, {kind}"].measured > 0
    assert rows[f"librdkafka produces 1024 B, {replication.REPLICATED}"].ratio is not None
