"""What is written down when a batch is decided, and what follows from it for the next commit. Decides, does no I/O.

A batch counts from the moment its decision is stored, and never before. Afterwards it can only be completed: its
transactions are committed, by whoever comes first, as often as it takes.

A run is one start of a query; a query keeps its id over all its runs. A run may take over from the one that it found
when its first task began, and from nobody else. Whoever was taken over from never decides again, nor does whoever was
at work then. Only what such runs have left open is aborted: it may be late, but never hits what a newer run decided.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.transactions.handles import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

VERSION: Final = 1
PREFIX: Final = "tidelog-sink"
RETIRED_MAX: Final = 100
"""Runs that are remembered as over: the oldest are forgotten, as nothing of theirs can be alive any more."""
_OFFSETS_MAX: Final = 32 << 10
"""Characters of source offsets that are kept as they are. Of more only the hash is."""
NO_RUN: Final = ""
"""Seen by the first run of a query: nobody was there before."""


class UnreadableDecision(ValueError):  # noqa: N818 - named for the fact it reports
    """What is stored is not what this release writes."""


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """What a batch was made of, by the checkpoint of its query."""

    digest: str
    text: str
    """Empty when it is too long to be kept."""

    @classmethod
    def of(cls, lines: Sequence[str]) -> SourceOffsets:
        text = "\n".join(lines)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(digest, text if len(text) <= _OFFSETS_MAX else "")


@dataclass(frozen=True, slots=True)
class Decision:
    """The last decided batch of a query."""

    query: str
    run: str
    batch: int
    winners: tuple[PreparedTransaction, ...]
    adopted: bool
    """The winners cannot time out: whoever finds one ended knows that it is committed."""
    retired: tuple[str, ...] = ()
    offsets: SourceOffsets | None = None
    """None when the checkpoint could not be read."""
    checkpoint: str | None = None

    @property
    def transactional_ids(self) -> frozenset[str]:
        return frozenset(each.transactional_id for each in self.winners)

    def to_json(self) -> bytes:
        prefix = transactions_of(self.query)
        fields: dict[str, Any] = {
            "version": VERSION,
            "query": self.query,
            "run": self.run,
            "batch": self.batch,
            "adopted": self.adopted,
            "winners": [
                [each.transactional_id.removeprefix(prefix), each.producer_id, each.epoch, each.transaction_version]
                for each in self.winners
            ],
            "retired": list(self.retired),
            "offsets": None if self.offsets is None else [self.offsets.digest, self.offsets.text],
            "checkpoint": self.checkpoint,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, stored: bytes) -> Decision:
        """UnreadableDecision when it is not what `to_json` gave."""
        try:
            fields = json.loads(stored)
            if fields["version"] != VERSION:
                raise UnreadableDecision(f"it has version {fields['version']}, and was written by a newer release")
            prefix = transactions_of(str(fields["query"]))
            offsets = fields["offsets"]
            return cls(
                query=str(fields["query"]),
                run=str(fields["run"]),
                batch=int(fields["batch"]),
                winners=tuple(
                    PreparedTransaction(f"{prefix}{name}", int(producer_id), int(epoch), int(version))
                    for name, producer_id, epoch, version in fields["winners"]
                ),
                adopted=bool(fields["adopted"]),
                retired=tuple(str(run) for run in fields["retired"]),
                offsets=None if offsets is None else SourceOffsets(str(offsets[0]), str(offsets[1])),
                checkpoint=fields["checkpoint"],
            )
        except UnreadableDecision:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UnreadableDecision(f"it is no decision: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Proposal:
    """A batch that Spark wants committed."""

    query: str
    run: str
    batch: int
    seen_run: str
    """The run of the last decision that the batch's tasks found, NO_RUN without one."""
    offsets: SourceOffsets | None = None


class Verdict(Enum):
    DECIDE = "it is new"
    COMPLETE = "it is decided already: what was decided is to be completed, and nothing to be written"
    SUPERSEDED = "another run has taken over"
    OLDER = "later batches are decided already"
    OTHER_INPUT = "it is decided already, but for other input"


REFUSED: Final = frozenset({Verdict.SUPERSEDED, Verdict.OLDER, Verdict.OTHER_INPUT})


def judge(last: Decision | None, proposal: Proposal) -> Verdict:
    if last is None:
        # What the tasks saw was there then: a decision does not go away by itself.
        return Verdict.DECIDE
    if proposal.run in last.retired or last.run not in {proposal.run, proposal.seen_run}:
        return Verdict.SUPERSEDED
    if proposal.batch < last.batch:
        return Verdict.OLDER
    if proposal.batch > last.batch:
        return Verdict.DECIDE
    known = last.offsets is not None and proposal.offsets is not None
    if known and last.offsets.digest != proposal.offsets.digest:  # type: ignore[union-attr]
        return Verdict.OTHER_INPUT
    return Verdict.COMPLETE


def decided(
    last: Decision | None,
    proposal: Proposal,
    winners: Iterable[PreparedTransaction],
    *,
    adopted: bool,
    checkpoint: str | None,
    open_runs: Collection[str] = (),
) -> Decision:
    """What is to be stored for a proposal that is new.

    `open_runs` have transactions open when a run takes over. They began before it decided: they cannot take over.
    """
    return Decision(
        query=proposal.query,
        run=proposal.run,
        batch=proposal.batch,
        winners=tuple(winners),
        adopted=adopted,
        retired=_retired(last, proposal.run, open_runs),
        offsets=proposal.offsets,
        checkpoint=checkpoint,
    )


def taken_over(last: Decision, run: str, open_runs: Collection[str] = ()) -> Decision:
    """The same batch and winners, for a run that repeats the batch: from now on it decides."""
    return replace(last, run=run, retired=_retired(last, run, open_runs))


def takes_over(last: Decision | None, run: str) -> bool:
    return last is None or last.run != run


def refusal_text(verdict: Verdict, last: Decision, proposal: Proposal) -> str:
    batch, query = proposal.batch, proposal.query
    if verdict is Verdict.SUPERSEDED:
        return (
            f"batch {batch} of query {query} is not committed: run {last.run} of the same query, on the same "
            f"checkpoint, has taken over from run {proposal.run}. Nothing of this batch is visible; let the other run "
            "go on, or stop it before this query is started again"
        )
    if verdict is Verdict.OLDER:
        return (
            f"batch {batch} of query {query} is not committed: batch {last.batch} was committed before, so that the "
            "checkpoint is older than the output, as after restoring a backup. Writing it would repeat rows. Restore "
            "the newest checkpoint; or, if repeated rows are acceptable, begin with a new checkpoint location"
        )
    assert verdict is Verdict.OTHER_INPUT
    return (
        f"batch {batch} of query {query} is not committed: a batch {batch} was committed before, from other source "
        f"offsets{_shown(last.offsets)} than the checkpoint has now{_shown(proposal.offsets)}. The checkpoint is older "
        "than the output, as after restoring a backup. Restore the newest checkpoint; or, if repeated rows are "
        "acceptable, begin with a new checkpoint location"
    )


# --- names ---


def transactions_of(query: str) -> str:
    """What the transactional ids of a query begin with."""
    return f"{PREFIX}.{query}."


def transactions_of_run(query: str, run: str) -> str:
    return f"{PREFIX}.{query}.{run}."


def attempt_id(query: str, run: str, process: str, place: int) -> str:
    """One process runs one task at a time, and is alone in naming these: no task that is late, and was given up long
    ago, can come between a later one and its transaction."""
    return f"{transactions_of_run(query, run)}{process}.{place}"


def run_of(query: str, transactional_id: str) -> str | None:
    """Of an attempt's transaction; None if it is none of the query's."""
    prefix = transactions_of(query)
    run, dot, _ = transactional_id.removeprefix(prefix).partition(".")
    return run if transactional_id.startswith(prefix) and dot else None


def decider_id(query: str) -> str:
    return f"{transactions_of(query)}decider"


# ---


def _retired(last: Decision | None, run: str, open_runs: Collection[str]) -> tuple[str, ...]:
    if not takes_over(last, run):
        assert last is not None
        return last.retired
    before = () if last is None else (*last.retired, *sorted({*open_runs} - {*last.retired, last.run, run}), last.run)
    return (before or tuple(sorted({*open_runs} - {run})))[-RETIRED_MAX:]


def _shown(offsets: SourceOffsets | None) -> str:
    return f" ({offsets.text[:200]})" if offsets is not None and offsets.text else ""
