"""Ctrl-C in programs that use the clients without `await`: they end soon, say one thing, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidelog.client import OffsetSpec, TopicPartition
from tidelog.client.blocking import Admin, Consumer, Producer
from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import BrokerProcess, StartBroker

WITHIN_S = 60.0
"""Half of what a record's delivery may take: whoever waits for a broker that does not answer is found out."""

BEGINNING = """
import sys
import threading
from tidelog.client import OffsetSpec
from tidelog.client.blocking import Admin, Consumer, Producer
bootstrap, topic = sys.argv[1:]
def waiting():
    print("waiting", flush=True)
"""

READING = """
with Consumer(bootstrap, topics=[topic], group_id=topic, auto_offset_reset="earliest") as consumer:
    for record in consumer:
        print(record.value.decode(), flush=True)
"""

READING_BATCHES = """
with Consumer(bootstrap) as consumer:
    consumer.assign_topics([topic], OffsetSpec.earliest())
    for batch in consumer.batches():
        print(batch.num_rows, flush=True)
"""

FLUSHING = """
with Producer(bootstrap, linger_ms=60_000) as producer:
    waiting()
    sys.stdin.readline()
    futures = [producer.send(topic, b"x") for _ in range(10)]
    waiting()
    producer.flush()
"""

SENDING = """
with Producer(bootstrap, buffer_memory=20_000, batch_size=5_000) as producer:
    producer.send_and_wait(topic, b"x")
    waiting()
    sys.stdin.readline()
    waiting()
    while True:
        producer.send(topic, b"x" * 1000)
"""

COMMITTING = """
with Producer(bootstrap, transactional_id=topic) as producer:
    with producer.transaction():
        producer.send_and_wait(topic, b"x")
        waiting()
        sys.stdin.readline()
        for _ in range(10):
            producer.send(topic, b"x" * 1000)
        waiting()
"""

COMMITTING_MUCH = """
with Producer(bootstrap, transactional_id=topic, buffer_memory=20_000, batch_size=5_000) as producer:
    with producer.transaction():
        producer.send_and_wait(topic, b"x")
        waiting()
        sys.stdin.readline()
        waiting()
        while True:
            producer.send(topic, b"x" * 1000)
"""

CLOSED_BY_NOBODY = """
producer = Producer(bootstrap)
producer.start()
producer.send_and_wait(topic, b"x")
waiting()
sys.stdin.readline()
producer.send(topic, b"y")
waiting()
producer.flush()
"""

SENT = """
with Producer(bootstrap, linger_ms=60_000) as producer:
    producer.send(topic, b"x")
    waiting()
    threading.Event().wait()
"""

IN_A_TRANSACTION = """
with Producer(bootstrap, transactional_id=topic) as producer:
    with producer.transaction():
        producer.send_and_wait(topic, b"x")
        waiting()
        threading.Event().wait()
"""

THREADS = """
def read(consumer):
    try:
        for record in consumer:
            print(record.value.decode(), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
consumer = Consumer(bootstrap, topics=[topic], group_id=topic, auto_offset_reset="earliest")
consumer.start()
threading.Thread(target=read, args=(consumer,)).start()
threading.Event().wait()
"""

STARTING = """
client = {client}(bootstrap)
waiting()
sys.stdin.readline()
waiting()
client.start()
"""

NOISE = (
    "Exception ignored",
    "was never",
    "was destroyed",
    "During handling",
    "Traceback (most recent call last):\n" * 2,
)


Start = Callable[[str, str, str], "Program"]


class Program:
    """A program of its own, which is told to go on by a line, and to end by Ctrl-C."""

    def __init__(self, code: str, bootstrap: str, topic: str) -> None:
        # Where tests run in the background of a shell they ignore Ctrl-C, and programs that they start would too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._seen: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-W", "always", "-c", BEGINNING + code, bootstrap, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{line}\n"

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _is_waiting(self) -> bool:
        """Whether its first thread sleeps, and has done nothing since this was last asked."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        before, self._seen = self._seen, re.findall(r"^(?:State|voluntary_ctxt_switches).*", status, re.MULTILINE)
        return before == self._seen and "sleeping" in self._seen[0]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def interrupt(self) -> None:
        """It ends as a program does that knows nothing of Ctrl-C, with nothing but that to say."""
        eventually(self._is_waiting, "the program to wait", within_s=WITHIN_S)
        self._process.send_signal(signal.SIGINT)
        _, complaints = self._process.communicate(timeout=WITHIN_S)
        assert self._process.returncode == -signal.SIGINT, complaints
        assert complaints.count("Traceback") == 1, complaints
        assert not any(noise in complaints for noise in NOISE), complaints
        assert "Warning" not in complaints, complaints


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Program] = []

    def begin(code: str, bootstrap: str, topic: str) -> Program:
        started.append(Program(code, bootstrap, topic))
        return started[-1]

    yield begin
    for program in started:
        program.close()


@pytest.fixture
def frozen(fresh_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker that a test can have stop answering, without hanging up (SIGSTOP)."""
    broker = fresh_broker()
    yield broker
    broker.kill()


def test_one_who_reads_in_a_group_leaves_it(start: Start, bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic(topic, partitions=1)
        for number in range(3):
            producer.send(topic, b"%d" % number)
        producer.flush()
        program = start(READING, bootstrap, topic)
        for number in range(3):
            program.says(str(number))
        program.interrupt()
        assert admin.describe_group(topic).members == ()
        assert admin.list_group_offsets(topic)[TopicPartition(topic, 0)].offset == 3


def test_one_who_reads_in_another_thread_leaves_too(start: Start, bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
        program = start(THREADS, bootstrap, topic)
        program.says("x")
        program.interrupt()
        assert admin.describe_group(topic).members == ()


def test_what_is_buffered_reaches_a_broker_that_answers(start: Start, bootstrap: str, topic: str) -> None:
    program = start(SENT, bootstrap, topic)
    program.says("waiting")
    program.interrupt()
    with Consumer(bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        assert next(consumer).value == b"x"


def test_a_transaction_is_aborted_and_holds_nobody_up(start: Start, bootstrap: str, topic: str) -> None:
    program = start(IN_A_TRANSACTION, bootstrap, topic)
    program.says("waiting")
    program.interrupt()
    with Admin(bootstrap) as admin:
        assert admin.describe_transaction(topic).state in {"PrepareAbort", "CompleteAbort"}


def test_one_who_reads_batches_ends(start: Start, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"x")
    program = start(READING_BATCHES, bootstrap, topic)
    program.says("1")
    program.interrupt()


def test_one_who_reads_leaves_a_broker_that_does_not_answer(start: Start, frozen: BrokerProcess, topic: str) -> None:
    with Producer(frozen.bootstrap) as producer:
        producer.send(topic, b"x")
    program = start(READING, frozen.bootstrap, topic)
    program.says("x")
    os.kill(frozen.pid, signal.SIGSTOP)
    program.interrupt()


WRITERS = {
    "flushing": FLUSHING,
    "sending": SENDING,
    "committing": COMMITTING,
    "committing-much": COMMITTING_MUCH,
    "closed-by-nobody": CLOSED_BY_NOBODY,
}


@pytest.mark.parametrize("code", WRITERS.values(), ids=WRITERS)
def test_one_who_writes_waits_for_no_broker_that_does_not_answer(
    start: Start, frozen: BrokerProcess, topic: str, code: str
) -> None:
    program = start(code, frozen.bootstrap, topic)
    program.says("waiting")
    os.kill(frozen.pid, signal.SIGSTOP)
    program.go_on()
    program.says("waiting")
    program.interrupt()


@pytest.mark.parametrize("client", ["Admin", "Consumer", "Producer"])
def test_one_who_has_not_started_yet_ends(start: Start, frozen: BrokerProcess, topic: str, client: str) -> None:
    program = start(STARTING.format(client=client), frozen.bootstrap, topic)
    program.says("waiting")
    os.kill(frozen.pid, signal.SIGSTOP)
    program.go_on()
    program.says("waiting")
    program.interrupt()
