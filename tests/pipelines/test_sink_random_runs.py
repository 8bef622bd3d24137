"""Runs that begin, die anywhere, overlap, and try tasks twice, in any order: each row once in the end."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from sink_runs import ROWS, TASKS, Checkpoint, Driver, create_topic, open_transactions, visible

from tidelog.pipelines.sink.decider import Refused
from tidelog.pipelines.sink.desk import TransactionLost
from tidelog.pipelines.sink.processes import WritingProcess

if TYPE_CHECKING:
    from tidelog.pipelines.sink.messages import Written

STEPS = ("begin", "adopt", "decide", "complete", "sweep", "one is completed", "completed", "take over")
"""All but the one in which an open transaction of the decider's has to be waited for by tasks, which takes long."""


class Died(BaseException):
    """The driver goes no further."""


class SinkMachine(RuleBasedStateMachine):
    """Some runs of one query, of which all but the newest are zombies. Spark would let none of them go on after an
    error, nor do we."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        super().__init__()
        self.bootstrap = bootstrap
        self.topic = f"random-{len(topics)}-{id(self)}"
        topics.append(self.topic)
        create_topic(bootstrap, self.topic)
        self.directory = tempfile.TemporaryDirectory()
        self.checkpoint = Checkpoint(Path(self.directory.name))
        self.drivers: list[Driver] = []
        self.dies_at: dict[str, str | None] = {}
        self.held: list[tuple[Driver, int, list[Written]]] = []
        """Batches that are written, and whose commit comes later."""

    def _driver(self, which: int) -> Driver:
        return self.drivers[which % len(self.drivers)]

    @rule()
    def a_run_starts(self) -> None:
        name = str(len(self.dies_at))
        self.dies_at[name] = None

        def step(reached: str) -> None:
            if reached == self.dies_at[name]:
                self.dies_at[name] = None
                raise Died(reached)

        self.drivers.append(Driver(self.bootstrap, self.topic, self.checkpoint, step=step))
        self.drivers[-1].name = name  # type: ignore[attr-defined]

    @precondition(lambda self: self.drivers)
    @rule(which=st.integers(0, 9), step=st.sampled_from(STEPS) | st.none(), twice=st.sets(st.integers(0, TASKS - 1)))
    def a_batch(self, which: int, step: str | None, twice: set[int]) -> None:
        driver = self._driver(which)
        batch = self.checkpoint.plan()
        self._commit(driver, batch, self._written(driver, batch, twice), step)

    @precondition(lambda self: self.drivers)
    @rule(which=st.integers(0, 9))
    def a_batch_is_written(self, which: int) -> None:
        driver = self._driver(which)
        batch = self.checkpoint.plan()
        self.drivers.remove(driver)
        self.held.append((driver, batch, self._written(driver, batch, set())))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 9), step=st.sampled_from(STEPS) | st.none())
    def and_committed_later(self, which: int, step: str | None) -> None:
        driver, batch, messages = self.held.pop(which % len(self.held))
        self.drivers.append(driver)
        self._commit(driver, batch, messages, step)

    def _written(self, driver: Driver, batch: int, twice: set[int]) -> list[Written]:
        for number in twice:
            driver.task(batch, number, WritingProcess())
        return driver.write(batch)

    def _commit(self, driver: Driver, batch: int, messages: list[Written], step: str | None) -> None:
        self.dies_at[driver.name] = step  # type: ignore[attr-defined]
        try:
            driver.commit(batch, messages)
        except Died:
            self.drivers.remove(driver)
            driver.die()
        except (Refused, TransactionLost):
            driver.abort(batch, messages)
            self.drivers.remove(driver)
        else:
            self.checkpoint.finish(batch)

    def teardown(self) -> None:
        try:
            batch = Driver(self.bootstrap, self.topic, self.checkpoint).batch()
            assert visible(self.bootstrap, self.topic) == list(range((batch + 1) * ROWS))
            assert open_transactions(self.bootstrap, self.checkpoint.query) == []
        finally:
            Driver.end_all()
            self.directory.cleanup()


def test_each_row_once_whatever_happens(bootstrap: str) -> None:
    topics: list[str] = []
    run_state_machine_as_test(
        lambda: SinkMachine(bootstrap, topics),  # type: ignore[arg-type] # it makes one
        settings=settings(
            max_examples=12,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    assert topics
