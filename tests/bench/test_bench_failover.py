"""The bench of failover works from end to end. How long things take here means nothing."""

from __future__ import annotations

from bench import failover


def test_partitions_survive_a_kill_a_stop_and_a_new_controller() -> None:
    few = failover.Amounts(12, 8, session_ms=2_000, other_sessions_ms=(), rounds=1, load_per_second=200)

    rows = {row.name: row for row in failover.rows(few)}

    killed, stopped = "kill -9 of a broker that leads 4 of 12", "SIGTERM to a broker that leads 4 of 12"
    assert rows[f"{killed}: records that failed"].measured == 0
    assert rows[f"{killed}: all have leaders, after the session"].measured > 0
    assert rows[f"{killed}: last one writable by librdkafka, after the kill"].measured > 0
    assert rows[f"{stopped}: records that failed or got lost"].measured == 0
    assert rows["new controller, 8 partitions: ready"].measured > 0
