"""The bench of Python clients works from end to end. What it measures here means nothing."""

from __future__ import annotations

from bench import client, client_peers


def test_every_library_produces_and_consumes() -> None:
    few = client.Amounts(trials=1, produced=300, consumed=600)

    rows = list(client.rows(few, sizes=[100]))

    contests = [*client.PRODUCING, *client.CONSUMING]
    assert len(rows) == sum(len(contest.others) for contest in contests)
    assert all(row.measured > 0 and row.ratio is not None for row in rows)
    used = {way for contest in contests for way in (contest.ours, *(way for _, way, _ in contest.others))}
    assert used == set(client_peers.WAYS)
