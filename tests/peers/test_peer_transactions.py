"""Java's transactions: loops abort, crash, hang and are replaced, alone and beside librdkafka's, while brokers die.

Whoever reads what is committed sees each input's output once and in order.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from drivers import java_command_of, java_peer
from loops import SCRIPT, Loop, Pipeline

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.timeout(7200)]

COUNT = 60
PARTITIONS = 4
SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
WITHIN_S = 240.0
"""For hanging, not for slowness: sessions and transactions must first time out."""
INTERNAL = ("__consumer_offsets", "__transaction_state")


class MortalLoop(Loop):
    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fate_of(self, value: str) -> list[str]:
        return [said["step"] for said in self._said if value in said.get("values", ())]

    def send(self, what: signal.Signals) -> None:
        if self.alive:
            self._process.send_signal(what)

    def retire(self) -> None:
        """However it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._ended()


class JavaPipeline(Pipeline):
    def run_java(self, transactional_id: str, *options: str) -> MortalLoop:
        return self._run(transactional_id, java_command_of("transform"), options)

    def run_confluent(self, transactional_id: str, *options: str) -> MortalLoop:
        return self._run(transactional_id, [sys.executable, str(SCRIPT)], options)

    def _run(self, transactional_id: str, command: list[str], options: Sequence[str]) -> MortalLoop:
        command += ["--bootstrap", self.bootstrap, "--transactional-id", transactional_id, "--group", self.group]
        command += ["--input", self.input, "--output", self.output, *options]
        loop = MortalLoop(f"{transactional_id}#{len(self.loops)}", command)
        self.loops.append(loop)
        return loop

    def look_for_repeats(self) -> None:
        """Who copied what came out twice, for people."""
        counts = Counter(each.value for each in self.read(committed=True))
        repeated = [value for value, count in counts.items() if count > 1]
        lines = [f"{loop.name} {value}: {loop.fate_of(value)}" for value in repeated for loop in self.mortals]
        assert not lines, "\n".join(lines)

    @property
    def mortals(self) -> list[MortalLoop]:
        return [loop for loop in self.loops if isinstance(loop, MortalLoop)]

    def check_with_java(self) -> None:
        """Java's reader of committed records agrees with librdkafka's."""
        wanted = self.read(committed=True)
        java = java_peer()
        for number in range(self.partitions):
            values = [each.value for each in wanted if each.partition == number]
            found = java.consume(self.bootstrap, self.output, len(values), partition=number, isolation="read_committed")
            assert [(each.record.value or b"").decode() for each in found] == values


@pytest.fixture
def cluster(start_cluster: StartCluster) -> ClusterProcesses:
    return start_cluster(settings=SETTINGS)


@pytest.fixture
def pipeline(cluster: ClusterProcesses) -> Iterator[JavaPipeline]:
    pipeline = JavaPipeline(cluster.bootstrap, "java", PARTITIONS)
    for name in (pipeline.input, pipeline.output):
        cluster.create_topic(name, PARTITIONS)
    yield pipeline
    pipeline.end()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_loop_that_changes_its_mind_now_and_then(pipeline: JavaPipeline, protocol: str) -> None:
    pipeline.send(COUNT)
    loop = pipeline.run_java("worker", f"--protocol={protocol}", "--abort-every=3")
    pipeline.wait_until_done()
    loop.close()
    everything = pipeline.check()
    assert loop.values("aborted") == pipeline.aborted(everything), "who asks for everything gets what was aborted too"
    assert loop.values("aborted")
    pipeline.check_with_java()


@pytest.mark.parametrize("step", ["begun", "produced", "offset"])
def test_a_java_zombie_is_fenced_by_its_successor(pipeline: JavaPipeline, step: str) -> None:
    pipeline.send(COUNT)
    zombie = pipeline.run_java("worker", f"--pause-at={step}")
    zombie.wait_for(step)
    successor = pipeline.run("worker")
    successor.wait_for("ready")
    zombie.go_on()
    assert zombie.failure() in {"ProducerFencedException", "InvalidProducerEpochException"}
    pipeline.wait_until_done()
    successor.close()
    taken_back = Counter() if step == "begun" else zombie.values("produced")
    assert pipeline.aborted(pipeline.check()) == taken_back


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_lost_its_partitions_meanwhile_commits_nothing_for_them(pipeline: JavaPipeline, protocol: str) -> None:
    """Its transactional id is its own, and its transaction has time: only the group knows that it is late."""
    pipeline.send(COUNT)
    late = pipeline.run_java("late", f"--protocol={protocol}", "--pause-at=produced", "--transaction-ms=300000")
    late.wait_for("produced")
    late.send(signal.SIGSTOP)
    other = pipeline.run_java("other", f"--protocol={protocol}")
    everything = set(pipeline.sent)
    eventually(lambda: other.values("committed").keys() >= everything, "the other to copy all", within_s=WITHIN_S)
    late.send(signal.SIGCONT)
    late.go_on()
    late.wait_for("aborted")
    late.close()
    other.close()
    assert pipeline.aborted(pipeline.check()) == late.values("aborted")


class Worker:
    """A loop that may end at any time, and is followed by another one of the same transactional id."""

    def __init__(self, start: Callable[[], MortalLoop]) -> None:
        self._start = start
        self._loop = start()
        self.deaths = 0

    def revive(self) -> None:
        if not self._loop.alive:
            self.deaths += 1
            self._loop = self._start()

    def pause(self) -> None:
        self._loop.send(signal.SIGSTOP)

    def resume(self) -> None:
        self._loop.send(signal.SIGCONT)

    def retire(self) -> None:
        self._loop.retire()


def keep_alive(pipeline: JavaPipeline, workers: list[Worker]) -> None:
    """Until all is copied, however often they die."""
    wanted = set(pipeline.sent)

    def done() -> bool:
        for worker in workers:
            worker.revive()
        return {each.value for each in pipeline.read(committed=True)} >= wanted

    try:
        eventually(done, "all output to be committed", within_s=WITHIN_S, every_s=0.2)
    except TimeoutError:
        missing = sorted(wanted - {each.value for each in pipeline.read(committed=True)})
        stories = "\n".join(loop.story() for loop in pipeline.loops[-8:])
        raise AssertionError(f"{len(missing)} are missing, such as {missing[:5]}\n{stories}") from None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_and_librdkafka_copy_together_while_everybody_dies(
    cluster: ClusterProcesses,
    pipeline: JavaPipeline,
    rounds: int,
    capsys: pytest.CaptureFixture[str],
    protocol: str,
) -> None:
    """Two of Java's loops halt at any step, one often aborts and hangs now and then, and one is librdkafka's. In each
    round a broker is killed."""
    chance = random.Random(protocol)
    options = (f"--protocol={protocol}", "--batch=5", "--transaction-ms=10000")

    def mortal(name: str) -> Callable[[], MortalLoop]:
        return lambda: pipeline.run_java(
            name, *options, "--halt-chance=0.01", f"--seed={chance.randrange(1 << 30)}", "--abort-every=6"
        )

    hesitant = Worker(lambda: pipeline.run_java("hesitant", *options, "--abort-every=3"))
    workers = [
        hesitant,
        Worker(mortal("mortal-0")),
        Worker(mortal("mortal-1")),
        Worker(lambda: pipeline.run_confluent("librdkafka", *options, "--abort-every=4")),
    ]
    pipeline.send(COUNT)
    keep_alive(pipeline, workers)
    for number in range(2 * rounds):
        victim = cluster.numbers[number % 3]
        pipeline.send(COUNT)
        cluster.kill(victim)
        if number % 2:
            hesitant.pause()
        pipeline.send(COUNT)
        keep_alive(pipeline, workers)
        if number % 2:
            hesitant.resume()
        cluster.restart(victim)
        cluster.wait_until_in_sync(pipeline.output, *INTERNAL)
    for worker in workers:
        worker.retire()
    pipeline.look_for_repeats()
    everything = pipeline.check()
    pipeline.check_with_java()
    cluster.wait_until_identical(pipeline.output, *INTERNAL)
    if rounds > 2:
        with capsys.disabled():
            print(  # noqa: T201 -- the figures are the point of the long run
                f"\n{protocol}: {len(pipeline.sent)} records copied once and in order, "
                f"{len(everything) - len(pipeline.sent)} taken back, {2 * rounds} brokers killed, "
                f"{sum(worker.deaths for worker in workers)} loops replaced"
            )
