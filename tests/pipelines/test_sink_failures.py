"""What can go wrong between tasks, driver and brokers: one test for each, and each row once in the end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from sink_runs import (
    ROWS,
    TASKS,
    Checkpoint,
    Driver,
    arrow,
    create_topic,
    last_decision,
    open_transactions,
    visible,
)

from tidelog.client import connection
from tidelog.client.errors import TimedOut, TransactionFailed
from tidelog.client.versions import choose_version
from tidelog.pipelines.sink.decider import OutputRepeats, Refused
from tidelog.pipelines.sink.desk import TransactionLost
from tidelog.pipelines.sink.messages import TaskIdentity
from tidelog.pipelines.sink.processes import WritingProcess
from tidelog.pipelines.sink.stream import proposed
from tidelog.pipelines.sink.writing import write_prepared
from tidelog.testing import eventually
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    import pyarrow as pa  # type: ignore[import-untyped]

    from tidelog.pipelines.sink.desk import Step
    from tidelog.testing import StartBroker
    from tidelog.wire.declare import Message

HERE = Path(__file__).resolve().parent
SHORT = {"kafka.transaction.timeout.ms": "1000"}


class Died(BaseException):
    """The driver goes no further."""


def dies_at(name: str, count: int = 1) -> Step:
    """When it comes to the step for the `count`th time."""
    left = count

    def step(reached: str) -> None:
        nonlocal left
        left -= reached == name
        if reached == name and not left:
            raise Died(name)

    return step


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    Driver.end_all()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def output(bootstrap: str, topic: str) -> str:
    create_topic(bootstrap, topic)
    return topic


@pytest.fixture
def driver(bootstrap: str, output: str, checkpoint: Checkpoint) -> Callable[..., Driver]:
    """Starts runs of the one query."""

    def start(**more: object) -> Driver:
        return Driver(bootstrap, output, checkpoint, **more)  # type: ignore[arg-type]

    return start


def run_to_die(bootstrap: str, topic: str, checkpoint: Checkpoint, *, dies_at: int = -1) -> list[str]:
    """A driver in a process of its own; gives what it said. It dies at that step of its second batch."""
    told = {"bootstrap": bootstrap, "topic": topic, "checkpoint": str(checkpoint.directory), "dies_at": dies_at}
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "client")])
    done = subprocess.run(
        [sys.executable, str(HERE / "sink_run_to_die.py"), json.dumps(told)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.stdout.splitlines()


# --- task retried or run twice ---


def test_of_several_attempts_at_a_task_one_is_seen(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    run = driver()
    batch = checkpoint.plan()
    first = [run.task(batch, number, WritingProcess()) for number in range(TASKS)]
    again = [run.task(batch, number) for number in range(TASKS)]
    run.commit(batch, [first[0], *again[1:]])
    assert visible(bootstrap, output) == list(range(ROWS))
    assert open_transactions(bootstrap, checkpoint.query) == []


def test_an_attempt_whose_process_dies_halfway_holds_nobody_back(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    assert run_to_die(bootstrap, output, checkpoint, dies_at=1)[-1] == "step commit"
    assert len(open_transactions(bootstrap, checkpoint.query)) == TASKS
    assert driver().batch() == 1
    assert visible(bootstrap, output) == list(range(2 * ROWS))
    assert open_transactions(bootstrap, checkpoint.query) == []


def test_an_attempt_that_fails_aborts_what_it_wrote(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    run = driver()
    checkpoint.plan()

    def failing() -> Iterator[pa.RecordBatch]:
        yield from arrow(range(10))
        raise RuntimeError("the rows come no further")

    with pytest.raises(RuntimeError, match="no further"):
        write_prepared(run.options, TaskIdentity(checkpoint.query, run.run, 0), failing(), WritingProcess())
    assert open_transactions(bootstrap, checkpoint.query) == []
    assert visible(bootstrap, output) == []


def test_an_attempt_that_was_given_up_cannot_disturb_later_batches(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    """It comes back when the next batch is decided but not completed: the worst time."""
    late = WritingProcess()
    run = driver(step=dies_at("complete", 2))
    run.batch()
    run.task(0, 0, late)
    batch = checkpoint.plan()
    messages = [*(run.task(batch, number) for number in range(TASKS - 1)), run.task(batch, TASKS - 1, late)]
    with pytest.raises(Died):
        run.commit(batch, messages)
    run.task(0, 1, late)
    run.task(batch, 1, late)
    driver().batch()
    assert visible(bootstrap, output) == list(range(2 * ROWS))


# --- driver dies before commit ---


@pytest.mark.parametrize("step", ["begin", "adopt", "decide", "decided but for the end"])
def test_what_a_driver_had_not_decided_is_done_again(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver], step: str
) -> None:
    first = driver(step=dies_at(step))
    with pytest.raises(Died):
        first.batch()
    first.die()
    assert last_decision(driver()) is None
    second = driver()
    assert second.batch() == 0
    assert second.batch() == 1
    assert visible(bootstrap, output) == list(range(2 * ROWS))
    assert open_transactions(bootstrap, checkpoint.query) == []


# --- driver dies after the decision, before Spark's commit log ---


@pytest.mark.parametrize("step", ["complete", "one is completed", "completed"])
def test_what_a_driver_had_decided_is_completed_and_not_written_again(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver], step: str
) -> None:
    first = driver(step=dies_at(step))
    with pytest.raises(Died):
        first.batch()
    first.die()
    second = driver()
    messages = second.write(checkpoint.plan())
    assert all(each.prepared is None for each in messages)
    second.commit(0, messages)
    checkpoint.finish(0)
    assert visible(bootstrap, output) == list(range(ROWS))
    second.batch()
    assert visible(bootstrap, output) == list(range(2 * ROWS))


@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_at_any_step_loses_and_repeats_nothing(
    bootstrap: str, output: str, checkpoint: Checkpoint
) -> None:
    """One after the other, on one checkpoint: each is followed by a run that repairs it, and dies a step later."""
    died: list[str] = []
    number = 0
    while not died or died[-1] != "step finish":
        died.append(run_to_die(bootstrap, output, checkpoint, dies_at=number)[-1])
        number += 1
    assert {each.removeprefix("step ") for each in died} == {
        "write",
        "commit",
        "adopt",
        "decide",
        "decided but for the end",
        "complete",
        "sweep",
        "one is completed",
        "completed",
        "finish",
    }
    assert run_to_die(bootstrap, output, checkpoint)[-1].startswith("finished")
    batches = len(list((checkpoint.directory / "commits").iterdir()))
    assert visible(bootstrap, output) == list(range(batches * ROWS))
    assert open_transactions(bootstrap, checkpoint.query) == []


# --- commit times out, then Spark calls abort ---


@pytest.mark.parametrize("step", ["complete", "one is completed"])
def test_a_decided_batch_is_not_aborted(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver], step: str
) -> None:
    run = driver(step=dies_at(step))
    batch = checkpoint.plan()
    messages = run.write(batch)
    with pytest.raises(Died):
        run.commit(batch, messages)
    run.abort(batch, messages)
    assert visible(bootstrap, output) == list(range(ROWS))
    assert driver().batch() == 0
    assert visible(bootstrap, output) == list(range(ROWS))


def test_an_undecided_batch_is_aborted(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    run = driver(step=dies_at("decided but for the end"))
    batch = checkpoint.plan()
    messages = run.write(batch)
    with pytest.raises(Died):
        run.commit(batch, messages)
    run.abort(batch, messages)
    assert visible(bootstrap, output) == []
    assert open_transactions(bootstrap, checkpoint.query) == []
    assert driver().batch() == 0
    assert visible(bootstrap, output) == list(range(ROWS))


@pytest.mark.parametrize("step", ["decide", "decided but for the end", "complete"])
def test_a_commit_that_gets_no_answer_is_settled_by_the_abort(
    fresh_broker: StartBroker, topic: str, checkpoint: Checkpoint, step: str
) -> None:
    """The broker stops, the commit times out, the broker goes on, and may do then what it was asked to."""
    broker = fresh_broker()
    create_topic(broker.bootstrap, topic)
    waiting = {"kafka.max.block.ms": "3000", "kafka.request.timeout.ms": "2500", "kafka.delivery.timeout.ms": "3000"}
    reached: list[str] = []

    def stops(name: str) -> None:
        reached.append(name)
        if name == step:
            os.kill(broker.pid, signal.SIGSTOP)

    batch = checkpoint.plan()
    messages = Driver(broker.bootstrap, topic, checkpoint).write(batch)
    try:
        with pytest.raises((TimedOut, TransactionFailed)):
            Driver(broker.bootstrap, topic, checkpoint, step=stops, settings=waiting).commit(batch, messages)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    settling = Driver(broker.bootstrap, topic, checkpoint)
    settling.abort(batch, messages)
    decision = last_decision(settling)
    assert decision is not None or "complete" not in reached
    assert visible(broker.bootstrap, topic) == ([] if decision is None else list(range(ROWS)))
    assert Driver(broker.bootstrap, topic, checkpoint).batch() == 0
    assert visible(broker.bootstrap, topic) == list(range(ROWS))


# --- two drivers on one checkpoint ---


def test_the_older_of_two_drivers_is_fenced(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    older, newer = driver(), driver()
    older.batch()
    batch = checkpoint.plan()
    of_older, of_newer = older.write(batch), newer.write(batch)
    newer.commit(batch, of_newer)
    with pytest.raises(Refused, match="taken over"):
        older.commit(batch, of_older)
    older.abort(batch, of_older)
    checkpoint.finish(batch)
    newer.batch()
    batch = checkpoint.plan()
    with pytest.raises(Refused, match="taken over"):
        older.commit(batch, older.write(batch))
    newer.commit(batch, newer.write(batch))
    assert visible(bootstrap, output) == list(range(4 * ROWS))


def test_of_two_first_drivers_one_decides(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    one, other = driver(), driver()
    batch = checkpoint.plan()
    of_one, of_other = one.write(batch), other.write(batch)
    other.commit(batch, of_other)
    with pytest.raises(Refused, match="taken over"):
        one.commit(batch, of_one)
    checkpoint.finish(batch)
    other.batch()
    assert visible(bootstrap, output) == list(range(2 * ROWS))


def test_a_driver_that_is_fenced_while_it_decides_looks_again(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    newer = driver()
    proposals: list[Coroutine[None, None, None]] = []

    def step(name: str) -> None:
        if name == "decided but for the end" and proposals:
            with ThreadPoolExecutor() as pool:  # a loop of its own, as in another process
                pool.submit(asyncio.run, proposals.pop()).result()

    older = driver(step=step)
    older.batch()
    batch = checkpoint.plan()
    of_newer, of_older = newer.write(batch), older.write(batch)

    async def decide() -> None:
        await newer.decider.commit(*proposed(newer.options, of_newer, batch))
        await newer.decider.close()

    proposals.append(decide())
    with pytest.raises(Refused, match="taken over"):
        older.commit(batch, of_older)
    assert visible(bootstrap, output) == list(range(2 * ROWS))


def test_a_driver_that_comes_to_its_senses_late_aborts_nothing_of_a_newer_one(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    """It is about to abort what others have left open, while a newer run has decided a batch and not completed it."""
    reached, goes_on = Event(), Event()

    def waits(name: str) -> None:
        if name == "sweep":
            reached.set()
            goes_on.wait()

    older = driver(step=waits)
    batch = checkpoint.plan()
    of_older = older.write(batch)

    async def decide() -> None:
        await older.decider.commit(*proposed(older.options, of_older, batch))
        await older.decider.close()

    with ThreadPoolExecutor() as pool:
        committing = pool.submit(asyncio.run, decide())
        reached.wait()
        driver().batch()
        newer = driver(step=dies_at("complete"))
        with pytest.raises(Died):
            newer.batch()
        goes_on.set()
        committing.result()
    assert len(open_transactions(bootstrap, checkpoint.query)) == TASKS
    driver().batch()
    assert visible(bootstrap, output) == list(range(2 * ROWS))


# --- checkpoint deleted ---


def test_a_new_checkpoint_repeats_the_output_and_says_so(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    driver().batch()
    half = driver(step=dies_at("complete"))
    with pytest.raises(Died):
        half.batch()
    shutil.rmtree(checkpoint.directory)
    anew = Checkpoint(checkpoint.directory)
    with pytest.warns(OutputRepeats, match="WRITTEN AGAIN"):
        Driver(bootstrap, output, anew).batch()
    # Also what nobody else would complete any more.
    assert visible(bootstrap, output) == sorted([*range(2 * ROWS), *range(ROWS)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Driver(bootstrap, output, anew).batch()


# --- older checkpoint restored ---


def test_an_older_checkpoint_is_refused(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver], tmp_path: Path
) -> None:
    first = driver()
    first.batch()
    shutil.copytree(checkpoint.directory, tmp_path / "backup")
    first.batch()
    first.batch()
    shutil.rmtree(checkpoint.directory)
    shutil.copytree(tmp_path / "backup", checkpoint.directory)
    with pytest.raises(Refused, match=r"batch 2 was committed before.*older than the output"):
        driver().batch()
    assert visible(bootstrap, output) == list(range(3 * ROWS))


def test_other_input_under_the_number_of_a_decided_batch_is_refused(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    """Else it would be taken for a repetition, and its rows would be lost."""
    driver().batch()
    (checkpoint.directory / "commits" / "0").unlink()
    checkpoint.write_offsets(0, ROWS + 7)
    with pytest.raises(Refused, match="other source offsets"):
        driver().batch()
    assert visible(bootstrap, output) == list(range(ROWS))


# --- batch outlives the transaction timeout ---


def test_a_batch_that_outlives_its_transactions_is_done_again(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    slow = driver(settings=SHORT)
    batch = checkpoint.plan()
    early = [slow.task(batch, number) for number in range(TASKS - 1)]
    eventually(lambda: not open_transactions(bootstrap, checkpoint.query), "the transactions to time out", within_s=60)
    messages = [*early, slow.task(batch, TASKS - 1)]
    with pytest.raises(TransactionLost, match=r"nothing of it is visible.*kafka\.transaction\.timeout\.ms"):
        slow.commit(batch, messages)
    slow.abort(batch, messages)
    assert visible(bootstrap, output) == []
    assert driver().batch() == batch
    assert visible(bootstrap, output) == list(range(ROWS))


def test_a_batch_that_is_decided_outlives_every_timeout(
    bootstrap: str, output: str, checkpoint: Checkpoint, driver: Callable[..., Driver]
) -> None:
    dying = driver(settings=SHORT, step=dies_at("complete"))
    with pytest.raises(Died):
        dying.batch()
    decided = {each.transactional_id for each in open_transactions(bootstrap, checkpoint.query)}
    assert len(decided) == TASKS
    # Another one with the same timeout is aborted meanwhile, by the same clock.
    witness = Checkpoint(checkpoint.directory.with_name("witness"))
    witness.plan()
    Driver(bootstrap, output, witness, settings=SHORT).task(0, 0)
    eventually(lambda: not open_transactions(bootstrap, witness.query), "the other one to time out", within_s=60)
    assert {each.transactional_id for each in open_transactions(bootstrap, checkpoint.query)} == decided
    driver().batch()
    assert visible(bootstrap, output) == list(range(ROWS))


# --- brokers without two-phase commits ---


def test_without_two_phase_commits_it_works_with_the_weaker_promise(
    fresh_broker: StartBroker, topic: str, checkpoint: Checkpoint
) -> None:
    broker = fresh_broker({"transaction.two.phase.commit.enable": "false"})
    create_topic(broker.bootstrap, topic)
    run = Driver(broker.bootstrap, topic, checkpoint)
    run.batch()
    decision = last_decision(run)
    assert decision is not None
    assert not decision.adopted
    slow = Driver(broker.bootstrap, topic, checkpoint, settings=SHORT)
    batch = checkpoint.plan()
    messages = slow.write(batch)
    eventually(
        lambda: not open_transactions(broker.bootstrap, checkpoint.query), "the transactions to time out", within_s=60
    )
    with pytest.raises(TransactionLost):
        slow.commit(batch, messages)
    Driver(broker.bootstrap, topic, checkpoint).batch()
    assert visible(broker.bootstrap, topic) == list(range(2 * ROWS))


@pytest.mark.parametrize("lists", [0, 1])
def test_older_brokers_will_do(
    bootstrap: str,
    output: str,
    checkpoint: Checkpoint,
    driver: Callable[..., Driver],
    monkeypatch: pytest.MonkeyPatch,
    lists: int,
) -> None:
    """Which know no two-phase commits, and find transactions by less."""
    newest: dict[type[Message], int] = {InitProducerIdRequest: 5, ListTransactionsRequest: lists}

    def chosen(offered: Mapping[int, tuple[int, int]], request: type[Message], limit: int | None = None) -> int:
        return choose_version(offered, request, newest.get(request, limit))

    monkeypatch.setattr(connection, "choose_version", chosen)
    driver().task(checkpoint.plan(), 0)
    run = driver()
    run.batch()
    run.batch()
    decision = last_decision(run)
    assert decision is not None
    assert not decision.adopted
    assert visible(bootstrap, output) == list(range(2 * ROWS))
