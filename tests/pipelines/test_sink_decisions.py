"""Which batches are decided, completed and refused: a table, and what holds for any course of events."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.client.transactions.handles import PreparedTransaction
from tidelog.pipelines.sink.decisions import (
    NO_RUN,
    RETIRED_MAX,
    Decision,
    Proposal,
    SourceOffsets,
    UnreadableDecision,
    Verdict,
    attempt_id,
    decided,
    decider_id,
    judge,
    refusal_text,
    run_of,
    taken_over,
    transactions_of,
    transactions_of_run,
)

THESE, OTHERS = SourceOffsets.of(['{"0":5}']), SourceOffsets.of(['{"0":6}'])
LAST: Final = Decision("q", "r2", 7, (), adopted=True, retired=("r1",), offsets=THESE)


@pytest.mark.parametrize(
    ("last", "proposal", "verdict"),
    [
        (None, Proposal("q", "r1", 0, NO_RUN), Verdict.DECIDE),
        (None, Proposal("q", "r1", 9, NO_RUN), Verdict.DECIDE),
        # the same run goes on
        (LAST, Proposal("q", "r2", 8, "r1"), Verdict.DECIDE),
        (LAST, Proposal("q", "r2", 10, "r1"), Verdict.DECIDE),
        (LAST, Proposal("q", "r2", 7, "r1", THESE), Verdict.COMPLETE),
        # the next run repeats, or goes on where nothing is to be repeated
        (LAST, Proposal("q", "r3", 7, "r2", THESE), Verdict.COMPLETE),
        (LAST, Proposal("q", "r3", 8, "r2", OTHERS), Verdict.DECIDE),
        # whether the input is the same cannot always be told
        (LAST, Proposal("q", "r3", 7, "r2", None), Verdict.COMPLETE),
        (LAST, Proposal("q", "r3", 7, "r2", OTHERS), Verdict.OTHER_INPUT),
        # an older checkpoint
        (LAST, Proposal("q", "r3", 6, "r2", THESE), Verdict.OLDER),
        (LAST, Proposal("q", "r3", 0, "r2"), Verdict.OLDER),
        # somebody was taken over from, or came too late to take over
        (LAST, Proposal("q", "r1", 8, NO_RUN), Verdict.SUPERSEDED),
        (LAST, Proposal("q", "r1", 8, "r2"), Verdict.SUPERSEDED),
        (LAST, Proposal("q", "r1", 7, "r2", THESE), Verdict.SUPERSEDED),
        (LAST, Proposal("q", "r3", 8, "r1"), Verdict.SUPERSEDED),
        (LAST, Proposal("q", "r3", 7, NO_RUN, THESE), Verdict.SUPERSEDED),
        (LAST, Proposal("q", "r3", 8, "?"), Verdict.SUPERSEDED),
    ],
)
def test_verdicts(last: Decision | None, proposal: Proposal, verdict: Verdict) -> None:
    assert judge(last, proposal) is verdict


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (Verdict.SUPERSEDED, ["run r2", "run r9", "taken over", "stop it"]),
        (Verdict.OLDER, ["batch 4", "batch 7", "older than the output", "new checkpoint location"]),
        (Verdict.OTHER_INPUT, ['{"0":5}', '{"0":6}', "Restore the newest checkpoint"]),
    ],
)
def test_a_refusal_says_why_and_what_to_do(verdict: Verdict, says: list[str]) -> None:
    text = refusal_text(verdict, LAST, Proposal("q", "r9", 4, NO_RUN, OTHERS))
    assert "\n" not in text
    for each in says:
        assert each in text


def test_who_takes_over_retires_the_other_and_keeps_what_was_decided() -> None:
    winners = (PreparedTransaction(attempt_id("q", "r1", "p", 0), 1, 2, 2),)
    first = decided(None, Proposal("q", "r1", 0, NO_RUN, THESE), winners, adopted=True, checkpoint="/c")
    second = taken_over(first, "r2")
    assert (second.batch, second.winners, second.offsets) == (0, winners, THESE)
    assert (second.run, second.retired) == ("r2", ("r1",))
    assert taken_over(second, "r2") == second
    third = decided(second, Proposal("q", "r2", 1, "r1", OTHERS), (), adopted=True, checkpoint="/c")
    assert (third.batch, third.run, third.retired) == (1, "r2", ("r1",))


def test_who_is_at_work_when_a_run_takes_over_is_retired_too() -> None:
    proposal = Proposal("q", "r2", 0, NO_RUN)
    first = decided(None, proposal, (), adopted=True, checkpoint=None, open_runs={"r1", "r2"})
    assert first.retired == ("r1",)
    second = taken_over(first, "r4", {"r3", "r4", "r2", "r1"})
    assert second.retired == ("r1", "r3", "r2")
    goes_on = decided(second, Proposal("q", "r4", 1, "r2"), (), adopted=True, checkpoint=None, open_runs={"r5"})
    assert goes_on.retired == second.retired


def test_the_oldest_of_many_runs_are_forgotten() -> None:
    decision = LAST
    for number in range(2 * RETIRED_MAX):
        decision = taken_over(decision, f"run {number}")
    assert len(decision.retired) == RETIRED_MAX
    assert decision.retired[-1] == f"run {2 * RETIRED_MAX - 2}"


def test_names_lie_under_their_query_and_run() -> None:
    name = attempt_id("q", "r", "p", 3)
    assert name.startswith(transactions_of_run("q", "r"))
    assert name.startswith(transactions_of("q"))
    assert decider_id("q").startswith(transactions_of("q"))
    assert not attempt_id("q2", "r", "p", 3).startswith(transactions_of("q"))
    assert run_of("q", name) == "r"
    assert run_of("q", decider_id("q")) is None
    assert run_of("q2", name) is None


_names = st.text(st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=8)
_numbers = st.integers(0, 2**40)
_winners = st.lists(
    st.tuples(_names, _numbers, st.integers(0, 32767), st.integers(0, 2)), max_size=4, unique_by=lambda each: each[0]
)


@given(
    _names,
    _names,
    _numbers,
    _winners,
    st.booleans(),
    st.lists(_names),
    st.none() | st.lists(st.text()),
    st.none() | _names,
)
def test_a_decision_is_read_as_it_was_written(
    query: str,
    run: str,
    batch: int,
    winners: list[tuple[str, int, int, int]],
    adopted: bool,
    retired: list[str],
    offsets: list[str] | None,
    checkpoint: str | None,
) -> None:
    prepared = tuple(PreparedTransaction(f"{transactions_of(query)}{name}", *rest) for name, *rest in winners)  # type: ignore[arg-type]
    decision = Decision(
        query,
        run,
        batch,
        prepared,
        adopted,
        tuple(retired),
        None if offsets is None else SourceOffsets.of(offsets),
        checkpoint,
    )
    assert Decision.from_json(decision.to_json()) == decision


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_what_is_no_decision_is_not_taken_for_one(stored: bytes) -> None:
    with pytest.raises(UnreadableDecision):
        Decision.from_json(stored)


def test_a_decision_of_a_newer_release_is_refused() -> None:
    fields = json.loads(LAST.to_json())
    with pytest.raises(UnreadableDecision, match="newer release"):
        Decision.from_json(json.dumps({**fields, "version": 2}).encode())


def test_long_offsets_are_compared_but_not_kept() -> None:
    long = SourceOffsets.of(["x" * 100_000])
    assert long.text == ""
    assert long.digest != SourceOffsets.of(["y" * 100_000]).digest


class Runs(RuleBasedStateMachine):
    """Runs start, decide and are repeated in any order. The log is the only thing they share, and writing to it is
    exclusive: whoever judges by an old record is fenced, as if it had not judged."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Decision | None = None
        self.runs: list[tuple[str, str]] = []
        """Each with the run that it found."""
        self.written: list[int] = []
        """Batches whose rows were made visible."""
        self.took_over: list[str] = []

    @rule()
    def starts(self) -> None:
        self.runs.append((f"run {len(self.runs)}", NO_RUN if self.last is None else self.last.run))

    @rule(which=st.integers(0, 99), ahead=st.integers(-2, 2), other_input=st.booleans())
    def commits(self, which: int, ahead: int, *, other_input: bool) -> None:
        if not self.runs:
            return
        run, seen = self.runs[which % len(self.runs)]
        batch = max(0, (-1 if self.last is None else self.last.batch) + ahead)
        offsets = SourceOffsets.of([f"{batch}{'x' * other_input}"])
        proposal = Proposal("q", run, batch, seen, offsets)
        verdict = judge(self.last, proposal)
        if verdict is Verdict.DECIDE:
            self.last = decided(self.last, proposal, (), adopted=True, checkpoint=None)
            self.written.append(batch)
        elif verdict is Verdict.COMPLETE:
            assert self.last is not None
            self.last = taken_over(self.last, run)
        if verdict in {Verdict.DECIDE, Verdict.COMPLETE} and (not self.took_over or self.took_over[-1] != run):
            self.took_over.append(run)

    @invariant()
    def no_batch_is_written_twice(self) -> None:
        assert self.written == sorted(set(self.written))

    @invariant()
    def who_was_taken_over_from_never_comes_back(self) -> None:
        assert len(self.took_over) == len(set(self.took_over))


TestRuns = Runs.TestCase
