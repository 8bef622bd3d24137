"""The bench of compaction works from end to end. What it measures here means nothing."""

from __future__ import annotations

from bench import compaction


def test_a_few_updates_shrink_to_the_last_values() -> None:
    few = compaction.Amounts(updates=60_000, keys=500, segment_bytes=1 << 20, kills=1)

    rows = {row.name.partition(": ")[2]: row for row in compaction.rows(few)}

    assert rows["wrong last values"].measured == 0
    assert rows["records left"].measured in {500, 501}
    assert rows["faults seen by a reader"].measured == 0
    assert rows["killed while cleaning"].measured == 0
