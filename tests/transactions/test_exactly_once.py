"""Consume, transform, produce: whoever reads what is committed sees each input's output once, whatever happens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from asking import create_topic
from loops import Pipeline

from tidelog.testing import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import BrokerProcess, StartBroker

pytestmark = pytest.mark.timeout(600)

COUNT = 60
QUICK = ("--transaction-ms=3000",)


@pytest.fixture
def pipeline(broker: BrokerProcess, raw: RawClient, topic: str) -> Iterator[Pipeline]:
    pipeline = Pipeline(broker.bootstrap, topic)
    for name in (pipeline.input, pipeline.output):
        create_topic(raw, name, pipeline.partitions)
    yield pipeline
    pipeline.end()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_loop_that_is_left_in_peace(pipeline: Pipeline, protocol: str) -> None:
    pipeline.send(COUNT)
    loop = pipeline.run("worker", f"--protocol={protocol}")
    pipeline.wait_until_done()
    pipeline.send(COUNT)
    pipeline.wait_until_done()
    loop.close()
    assert not pipeline.aborted(pipeline.check())


def test_one_that_changes_its_mind_now_and_then(pipeline: Pipeline) -> None:
    pipeline.send(COUNT)
    loop = pipeline.run("worker", "--abort-every=2")
    pipeline.wait_until_done()
    loop.close()
    everything = pipeline.check()
    assert loop.values("aborted") == pipeline.aborted(everything), "who asks for everything gets what was aborted too"
    assert loop.values("aborted")


def test_who_comes_later_goes_on_where_the_first_ended(pipeline: Pipeline) -> None:
    pipeline.send(COUNT)
    first = pipeline.run("worker")
    pipeline.wait_until_done()
    first.close()
    pipeline.send(COUNT)
    second = pipeline.run("another")
    pipeline.wait_until_done()
    second.close()
    assert not pipeline.aborted(pipeline.check())


@pytest.mark.parametrize("step", ["begun", "produced", "offset"])
def test_a_zombie_is_fenced_by_its_successor(pipeline: Pipeline, step: str) -> None:
    """Two instances of one transactional id: the second one's start ends what the first was doing."""
    pipeline.send(COUNT)
    zombie = pipeline.run("worker", f"--pause-at={step}", "--session-ms=6000")
    zombie.wait_for(step)
    successor = pipeline.run("worker")
    successor.wait_for("ready")
    zombie.go_on()
    assert zombie.failure() in {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    pipeline.wait_until_done()
    successor.close()
    assert pipeline.aborted(pipeline.check()) == zombie.values("produced") + successor.values("aborted")


@pytest.mark.parametrize("step", ["ready", "begun", "produced", "offset", "committing", "committed"])
def test_a_process_that_is_killed_is_replaced(pipeline: Pipeline, step: str) -> None:
    pipeline.send(COUNT)
    victim = pipeline.run("worker", *([] if step == "committing" else [f"--pause-at={step}"]))
    victim.wait_for(step)
    victim.kill()
    successor = pipeline.run("worker")
    pipeline.wait_until_done()
    successor.close()
    everything = pipeline.check()
    if step in {"produced", "offset"}:
        assert pipeline.aborted(everything) == victim.values("produced") + successor.values("aborted")


@pytest.mark.parametrize("step", ["produced", "offset"])
def test_one_that_nobody_replaces_by_name_is_timed_out(pipeline: Pipeline, step: str) -> None:
    """Whoever takes over its partitions waits until it is known what became of its offsets."""
    pipeline.send(COUNT)
    victim = pipeline.run("worker", f"--pause-at={step}", *QUICK)
    victim.wait_for(step)
    victim.kill()
    successor = pipeline.run("another")
    pipeline.wait_until_done()
    successor.close()
    assert pipeline.aborted(pipeline.check()) == victim.values("produced") + successor.values("aborted")


def test_one_that_takes_too_long_has_lost_its_transaction(pipeline: Pipeline) -> None:
    pipeline.send(COUNT)
    slow = pipeline.run("worker", "--pause-at=offset", *QUICK)
    slow.wait_for("offset")
    pipeline.wait_until_nothing_is_open()
    assert pipeline.read(committed=True) == []
    slow.go_on()
    slow.wait_for_any("failed", "aborted")
    pipeline.run("another")
    pipeline.wait_until_done()
    lost = Counter(slow.steps("produced")[0]["values"])
    assert pipeline.aborted(pipeline.check()) >= lost


def test_several_at_once_that_come_and_go(pipeline: Pipeline) -> None:
    """Partitions change hands in the middle of transactions; whoever lost one may not commit for it any more."""
    for number in range(4):
        pipeline.send(COUNT)
        pipeline.run(f"worker-{number}", "--batch=5", "--abort-every=5")
        if number >= 2:
            pipeline.loops[number - 2].kill()
    pipeline.wait_until_done()
    for loop in pipeline.loops[2:]:
        loop.close()
    pipeline.check()


def test_loops_go_on_when_their_broker_comes_back(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker({"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"})
    pipeline = Pipeline(broker.bootstrap, topic)
    with RawClient(broker.port) as client:
        for name in (pipeline.input, pipeline.output):
            create_topic(client, name, pipeline.partitions)
    loops = [pipeline.run(f"worker-{number}", "--batch=3", "--abort-every=5") for number in range(2)]
    try:
        for number in range(3):
            pipeline.send(COUNT)
            pipeline.wait_for_commits(3 * number + 1)
            broker.kill()
            broker.start()
        pipeline.wait_until_done()
        for loop in loops:
            loop.close()
        pipeline.check()
    finally:
        pipeline.end()
