"""Brokers end at every step of a transaction, in every role: whatever its outcome, it is the same everywhere.

One crash meets many transactions, each held at its own step. Afterwards clients go on as real ones do. What they were
told, or found out by asking again, is what readers of committed records see in every partition and in the group's
offsets; nothing stays open; all replicas are alike; and the transactional id goes on. Some clients die with the broker,
and a successor takes over: what they had decided stays, everything else is aborted.

`make test-transactions ROUNDS=N` runs the whole matrix, N times for each manner of ending a broker.
"""

from __future__ import annotations

import os
from itertools import product
from typing import TYPE_CHECKING

import pytest
from crash_cells import ALL_KINDS, SOME_KINDS, Role, Step
from crash_rounds import CrashRounds, Manner, differences
from crash_stage import ABSENT, BROKERS, TOPICS, CrashStage
from stepwise import Dialect

from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(7200)

ROUNDS = int(os.environ.get("TRANSACTION_ROUNDS", "0"))
MANNERS = list(Manner) if ROUNDS else [Manner.KILLED]


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.name.lower())
def test_a_transaction_has_one_outcome_when_a_broker_is(
    start_cluster: StartCluster, capsys: pytest.CaptureFixture[str], manner: Manner
) -> None:
    stage = CrashStage(start_cluster)
    rounds = CrashRounds(stage)
    figures = []
    for number in range(max(1, ROUNDS)):
        victim = BROKERS[number % len(BROKERS)]
        figures.append(rounds.run(ALL_KINDS if ROUNDS else SOME_KINDS, victim, manner))
    stage.cluster.restart(ABSENT)
    stage.cluster.wait_until_identical(*TOPICS)
    if ROUNDS:
        with capsys.disabled():
            print(  # noqa: T201 -- the figures are the point of the long run
                f"\n{manner.value}: {sum(each.cells for each in figures):,} transactions caught at a step by "
                f"{len(figures)} crashes, {sum(each.records for each in figures):,} records, each outcome one and the "
                f"same; a round takes {max(each.seconds for each in figures):.0f} s at most"
            )


def test_a_judge_who_finds_nothing_wrong_proves_nothing() -> None:
    place = TopicPartition("open", 0)
    wanted = {place: {"one": [["one|a", "one|b"]], "other": [["other|next"], ["other|b", "other|next"]]}}
    assert not differences("read", wanted, {place: ["one|a", "other|next", "one|b"]})
    assert not differences("read", wanted, {place: ["other|b", "one|a", "other|next", "one|b"]})
    for wrong in (
        ["one|a", "one|b"],
        ["one|a", "other|next"],
        ["one|a", "other|next", "one|b", "one|b"],
        ["one|b", "other|next", "one|a"],
        ["one|a", "other|a", "other|next", "one|b"],
        ["one|a", "other|next", "one|b", "third|a"],
    ):
        assert differences("read", wanted, {place: wrong})


def test_the_short_form_has_every_role_at_every_step() -> None:
    assert {(kind.role, kind.step) for kind in SOME_KINDS} == set(product(Role, Step))
    for part in (Role, Step):
        for each in part:
            ends = {(kind.committed, kind.dialect) for kind in SOME_KINDS if each in kind}
            assert ends == set(product((True, False), Dialect))
