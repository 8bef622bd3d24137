"""The clients without `await`, against a real broker."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from committed_reader import committed_values

from tidelog.client import (
    BrokerError,
    BrokersUnreachable,
    Closed,
    InvalidState,
    OffsetSpec,
    RebalanceListener,
    RecordTooLarge,
    TopicPartition,
    TransactionFailed,
    TransactionPart,
)
from tidelog.client import producer as asynchronous
from tidelog.client.blocking import Admin, Consumer, Producer
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.serializers import from_text, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def name() -> str:
    return f"blocking-{uuid.uuid4().hex[:12]}"


def test_what_was_sent_is_iterated_over(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
        assert admin.describe_topic(topic).name == topic
        with pytest.raises(BrokerError):
            admin.create_topic(topic)
    with Producer(bootstrap) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(1000)]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(1000))
        assert producer.send_and_wait(topic, b"last", key=b"k", headers=[("h", b"1")]).offset == 1000
        assert producer.partitions_for(topic) == 1
        assert producer.buffered_bytes == 0
    with Consumer(bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        found = list(islice(consumer, 1001))
        assert [record.value for record in found] == [b"%d" % number for number in range(1000)] + [b"last"]
        assert consumer.position(TopicPartition(topic, 0)) == 1001


def test_iteration_is_what_commits_count(bootstrap: str, topic: str, name: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    place = TopicPartition(topic, 0)
    for start in (0, 30):
        with Consumer(
            bootstrap, group_id=name, topics=[topic], auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            found = [record.value for record in islice(consumer, 30)]
            assert found == [b"%d" % number for number in range(start, start + 30)]
            assert consumer.positions() == {place: start + 30}
            if start:
                consumer.commit_soon().result()
            else:
                consumer.commit()
            committed = consumer.committed([place])[place]
            assert committed is not None
            assert committed.offset == start + 30
            assert len(consumer.poll(max_records=5)) == 5
            assert list(consumer.poll_by_partition(max_records=5)) == [place]


def test_arrow_batches_are_iterated_over(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    with Consumer(bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        rows = 0
        for batch in consumer.batches():
            rows += batch.num_rows
            if rows == 100:
                break


def test_requests_are_counted(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
        producer.send(topic, b"one").result()
        consumer.assign_topics([topic], OffsetSpec.earliest())
        assert consumer.poll(timeout_s=30)
        assert producer.metrics().requests["PRODUCE"].answered == 1
        assert consumer.metrics().requests["FETCH"].answered >= 1


def test_arrow_tables_are_sent(bootstrap: str, topic: str) -> None:
    pyarrow = importlib.import_module("pyarrow")
    with Producer(bootstrap) as producer:
        producer.send(topic, b"before")
        table = pyarrow.table({"value": [b"%d" % number for number in range(100)]})
        assert producer.send_batch(topic, table).result().rows == 100
    with Consumer(bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        assert [record.value for record in islice(consumer, 3)] == [b"before", b"0", b"1"]


def test_serializers_work_as_with_await(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, key_serializer=to_text, value_serializer=to_text) as producer:
        producer.send(topic, "value", key="key")
    with Consumer(bootstrap, key_deserializer=from_text, value_deserializer=from_text) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        record = next(consumer)
        assert (record.key, record.value) == ("key", "value")


def test_what_goes_wrong_is_in_the_future(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        with pytest.raises(RecordTooLarge):
            producer.send(topic, b"x" * 3_000_000).result()
        assert producer.send(topic, b"fits").result().offset == 0
    with pytest.raises(Closed):
        producer.send(topic, b"late")
    with pytest.raises(BrokersUnreachable):
        Producer("127.0.0.1:1", socket_connection_setup_timeout_ms=1000).start()


def test_transactions_commit_and_abort(bootstrap: str, topic: str, name: str) -> None:
    def broken(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"never")
            raise ZeroDivisionError

    def too_large(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"nor this")
            producer.send(topic, b"x" * 3_000_000)

    with Producer(bootstrap, transactional_id=name) as producer:
        with producer.transaction():
            for number in range(50):
                producer.send(topic, b"%d" % number)
        with pytest.raises(ZeroDivisionError):
            broken(producer)
        with pytest.raises(TransactionFailed):
            too_large(producer)
        producer.begin()
        producer.send(topic, b"prepared")
        assert producer.prepare() == producer.prepared
        producer.commit()
        with pytest.raises(InvalidState):
            producer.abort()
    assert committed_values(bootstrap, topic) == [b"%d" % number for number in range(50)] + [b"prepared"]


def test_a_part_of_a_transaction_is_written_elsewhere(bootstrap: str, topic: str, name: str) -> None:
    with Producer(bootstrap, transactional_id=name) as owner:
        owner.partitions_for(topic)
        owner.begin()
        handle = owner.transaction_handle([TopicPartition(topic, 0)])
        with Producer.join_transaction(bootstrap, handle) as writer:
            writer.send(topic, b"part", partition=0)
            part: TransactionPart = writer.leave()
        owner.include(part)
        owner.commit()
    assert committed_values(bootstrap, topic) == [b"part"]


def test_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger_ms=1) as producer, ThreadPoolExecutor(4) as threads:

        def work(thread: int) -> None:
            for number in range(250):
                producer.send(topic, b"%d-%d" % (thread, number), partition=0)

        list(threads.map(work, range(4)))
        producer.flush()
        with Consumer(bootstrap) as consumer:
            consumer.assign_topics([topic], OffsetSpec.earliest())
            found = [record.value or b"" for record in islice(consumer, 1000)]
    for thread in range(4):
        own = [value for value in found if value.startswith(b"%d-" % thread)]
        assert own == [b"%d-%d" % (thread, number) for number in range(250)]


def test_senders_wait_while_the_buffer_is_full(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, buffer_memory=20_000, batch_size=5_000, linger_ms=0) as producer:
        futures = [producer.send(topic, b"x" * 1000) for _ in range(500)]
        producer.flush()
        assert sorted(future.result(0).offset for future in futures) == list(range(500))


def test_a_running_event_loop_is_no_obstacle(bootstrap: str, topic: str) -> None:
    """As in a notebook."""

    async def cell() -> int:
        with Producer(bootstrap) as producer:
            return producer.send_and_wait(topic, b"x").offset

    assert asyncio.run(cell()) == 0


def test_a_client_in_a_callback_says_what_is_wrong_instead_of_hanging(bootstrap: str, topic: str) -> None:
    told: list[BaseException] = []
    done = threading.Event()
    with Producer(bootstrap) as producer:

        def callback(_future: Any) -> None:
            try:
                producer.flush()
            except RuntimeError as error:
                told.append(error)
            done.set()

        producer.send(topic, b"x").add_done_callback(callback)
        assert done.wait(60)
    assert "another thread" in str(told[0])


def test_a_listener_may_use_the_consumer(bootstrap: str, topic: str, name: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)

    class Looks(RebalanceListener):
        consumer: Consumer[bytes, bytes]
        found: Any = None

        def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            self.found = self.consumer.committed(partitions)

    listener = Looks()
    settings: Any = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(bootstrap, topics=[topic], listener=listener, **settings) as consumer:
        listener.consumer = consumer
        assert len(list(islice(consumer, 7))) == 7
        consumer.commit()
        consumer.unsubscribe()
    assert listener.found[TopicPartition(topic, 0)].offset == 7


FORGETFUL = """
import sys
from tidelog.client.blocking import Consumer, Producer
producer = Producer(sys.argv[1], linger_ms=60_000)
producer.start()
producer.send(sys.argv[2], b"forgotten")
consumer = Consumer(sys.argv[1], group_id="g" + sys.argv[2], topics=[sys.argv[2]])
consumer.start()
print("the end")
"""


def test_a_program_that_forgets_to_close_loses_nothing_and_ends(bootstrap: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL, bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
    with Consumer(bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        assert next(consumer).value == b"forgotten"


FORKING = """
import os, sys
from tidelog.client.blocking import Producer
with Producer(sys.argv[1]) as producer:
    producer.send_and_wait(sys.argv[2], b"parent")
    child = os.fork()
    if not child:
        with Producer(sys.argv[1]) as own:
            own.send_and_wait(sys.argv[2], b"child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    producer.send_and_wait(sys.argv[2], b"parent again")
"""


def test_a_forked_child_has_a_loop_of_its_own(bootstrap: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, bootstrap, topic], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    with Consumer(bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        assert [record.value for record in islice(consumer, 3)] == [b"parent", b"child", b"parent again"]


def test_an_interrupted_wait_is_cancelled(bootstrap: str, topic: str) -> None:
    code = f"""
import os, signal, sys, threading
from tidelog.client.blocking import Consumer, Producer
from tidelog.client import OffsetSpec
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a shell
with Producer({bootstrap!r}) as producer:
    producer.send_and_wait({topic!r}, b"x")
with Consumer({bootstrap!r}) as consumer:
    consumer.assign_topics([{topic!r}], OffsetSpec.earliest())
    next(consumer)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        next(consumer)
    except KeyboardInterrupt:
        print("interrupted", consumer.position(next(iter(consumer.assignment))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted 1\n"), done.stderr


def public(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, each) for name, each in vars(kind).items() if not name.startswith("_"))


def test_the_producer_has_everything_that_the_one_with_await_has() -> None:
    for name, theirs in [("__init__", vars(asynchronous.Producer)["__init__"]), *public(asynchronous.Producer)]:
        ours = vars(Producer)[name]
        if isinstance(theirs, property):
            assert isinstance(ours, property)
            continue
        functions = [getattr(each, "__func__", each) for each in (ours, theirs)]
        signatures = [list(inspect.signature(each).parameters.values()) for each in functions]
        assert signatures[0] == signatures[1]


def test_what_is_passed_on_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "blocking"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_clients_share_one_thread(bootstrap: str) -> None:
    before = threading.active_count()
    with Admin(bootstrap), Admin(bootstrap), Consumer(bootstrap), Producer(bootstrap):
        assert threading.active_count() <= before + 1
        assert LoopThread.shared() is LoopThread.shared()
    assert os.getpid()
