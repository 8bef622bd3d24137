"""Loops that read, transform and write, as processes; and what came of their records."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WITHIN_S = 120.0
"""For hanging, not for slowness: sessions and transactions must first time out."""

api: Any = importlib.import_module("confluent_kafka.admin")
"""It says nothing of what it exports."""

SCRIPT = Path(__file__).resolve().parent / "transformer.py"


class Loop:
    """A running instance. What it said stays readable when it is gone."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._said: list[dict[str, Any]] = []
        self._complaints: list[str] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self._readers = [
            threading.Thread(target=self._read, name=f"{name} says", daemon=True),
            threading.Thread(target=self._listen, name=f"{name} complains", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._said.extend(json.loads(line) for line in lines)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._complaints.extend(lines)

    # --- what it said ---

    def steps(self, step: str) -> list[dict[str, Any]]:
        return [said for said in self._said if said["step"] == step]

    def values(self, step: str) -> Counter[str]:
        return Counter(value for said in self.steps(step) for value in said["values"])

    def story(self) -> str:
        said = [f"{each['step']} {each.get('error', '')}{len(each.get('values', ()))}" for each in self._said[-30:]]
        return f"{self.name} (exit code {self._process.poll()}): {', '.join(said)}\n{''.join(self._complaints[-20:])}"

    def wait_for(self, step: str) -> None:
        self.wait_for_any(step)

    def wait_for_any(self, *steps: str) -> None:
        def there() -> bool:
            if self._process.poll() is not None:
                self._ended()
                assert any(map(self.steps, steps)), f"it ended before it was {steps}: {self.story()}"
            return any(map(self.steps, steps))

        try:
            eventually(there, f"{self.name} to be {steps}", within_s=WITHIN_S)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    # --- its life ---

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Has it end after the transaction that is under way."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WITHIN_S)
        self._ended()
        assert self._said[-1:] == [{"step": "closed"}], f"it did not close: {self.story()}"

    def kill(self) -> None:
        """SIGKILL: it can tell nobody."""
        self._process.kill()
        self._ended()

    def failure(self) -> str:
        """What it said when its client gave up."""
        self.wait_for("failed")
        self._ended()
        return str(self._said[-1]["error"])

    def _ended(self) -> None:
        self._process.wait(WITHIN_S)
        for reader in self._readers:
            reader.join(WITHIN_S)
        assert self._process.stdin is not None
        self._process.stdin.close()


class Found(NamedTuple):
    partition: int
    offset: int
    value: str


class Pipeline:
    """An input, an output, a group that reads, and the loops between."""

    def __init__(self, bootstrap: str, name: str, partitions: int = 2) -> None:
        self.bootstrap = bootstrap
        self.input, self.output, self.group = f"{name}-in", f"{name}-out", f"{name}-group"
        self.partitions = partitions
        self.loops: list[Loop] = []
        self.sent: list[str] = []

    def send(self, count: int) -> None:
        """Adds records to the input, each with a value of its own."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(len(self.sent), len(self.sent) + count):
            value = f"record-{number}"
            producer.produce(self.input, value.encode(), partition=number % self.partitions)
            self.sent.append(value)
        assert producer.flush(WITHIN_S) == 0

    def run(self, transactional_id: str, *options: str) -> Loop:
        command = [sys.executable, str(SCRIPT), "--bootstrap", self.bootstrap, "--transactional-id", transactional_id]
        command += ["--group", self.group, "--input", self.input, "--output", self.output, *options]
        loop = Loop(f"{transactional_id}#{len(self.loops)}", command)
        self.loops.append(loop)
        return loop

    def wait_for_commits(self, count: int) -> None:
        """Until so many transactions were committed, by all loops together."""

        def committed() -> bool:
            return sum(len(loop.steps("committed")) for loop in self.loops) >= count

        eventually(committed, f"{count} commits", within_s=WITHIN_S)

    def end(self) -> None:
        """For whoever does not care how."""
        for loop in self.loops:
            loop.kill()

    # --- what came of it ---

    def read(self, *, committed: bool) -> list[Found]:
        """Everything in the output, in the order of each partition, as far as such a reader gets now."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.output, number, 0) for number in range(self.partitions)])
        found: list[Found] = []
        at_end: set[int] = set()

        def take() -> bool:
            for message in consumer.consume(500, 0.1):
                error, partition, offset, value = (
                    message.error(),
                    message.partition(),
                    message.offset(),
                    message.value(),
                )
                assert partition is not None
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(partition)
                    continue
                value = message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                at_end.discard(partition)
                found.append(Found(partition, offset, value.decode()))
            return len(at_end) == self.partitions

        try:
            eventually(take, f"the end of {self.output}", within_s=WITHIN_S)
        finally:
            consumer.close()
        return found

    def wait_until_done(self) -> None:
        """Until every record of the input has come out, for a reader who sees what is committed."""
        wanted = set(self.sent)

        def done() -> bool:
            return {each.value for each in self.read(committed=True)} >= wanted

        try:
            eventually(done, "all output to be committed", within_s=WITHIN_S, every_s=0.2)
        except TimeoutError:
            missing = sorted(wanted - {each.value for each in self.read(committed=True)})
            stories = "\n".join(loop.story() for loop in self.loops)
            raise AssertionError(f"{len(missing)} are missing, such as {missing[:5]}\n{stories}") from None

    def wait_until_nothing_is_open(self) -> None:
        """Until no transaction holds a reader of the output back."""
        admin = api.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        places = [TopicPartition(self.output, number) for number in range(self.partitions)]

        def ends(level: IsolationLevel) -> list[int]:
            asked = admin.list_offsets({place: api.OffsetSpec.latest() for place in places}, isolation_level=level)
            return [asked[place].result(WITHIN_S).offset for place in places]

        def nothing() -> bool:
            return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)

        eventually(nothing, "all transactions to end", within_s=WITHIN_S, every_s=0.1)

    def check(self) -> list[Found]:
        """Each input came out once and in order, for whoever reads what is committed. Gives what others see."""
        self.wait_until_nothing_is_open()
        committed = self.read(committed=True)
        counts = Counter(each.value for each in committed)
        missing, strange = sorted(set(self.sent) - counts.keys()), sorted(counts.keys() - set(self.sent))
        repeated = sorted(value for value, count in counts.items() if count > 1)
        wrong = f"missing {missing[:5]}, unknown {strange[:5]}, more than once {repeated[:5]}"
        stories = "\n".join(loop.story() for loop in self.loops)
        assert not missing + strange + repeated, f"{wrong}\n{stories}"
        for number in range(self.partitions):
            values = [each.value for each in committed if each.partition == number]
            assert values == self.sent[number :: self.partitions], f"partition {number} is out of order"
        everything = self.read(committed=False)
        seen = {(each.partition, each.offset): each.value for each in everything}
        assert all(seen.get((each.partition, each.offset)) == each.value for each in committed)
        return everything

    def aborted(self, everything: Iterable[Found]) -> Counter[str]:
        """How often each value was written and taken back."""
        return Counter(each.value for each in everything) - Counter(self.sent)
