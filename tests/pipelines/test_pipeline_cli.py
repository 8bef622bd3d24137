"""`tidelog pipeline` as its users have it: real processes, a real broker, a real Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.client import OffsetSpec
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.pipelines.runner.progress import Figures
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client.fetching import ConsumerRecord

SALES = """
    from pyspark.sql import functions as F
    from names_beside_sales import shout
    from tidelog.pipelines import Settings, json, read, view, write

    clients = {"compression.type": "gzip", "fetch.max.bytes": 1 << 20}  # each is known to one side only
    settings = Settings(kafka=clients, conf={"spark.sql.shuffle.partitions": 2})
    orders = read.topic("orders", value=json("id long, product string, amount double"))
    products = read.table("products", key="product", value=json("name string"))
    loud = F.udf(shout)

    @view
    def named(orders, products):
        return orders.join(F.broadcast(products), "product").withColumn("name", loud("name"))

    @write.table("sales", key="name", partitions=1)
    def sales(named):
        return named.groupBy("name").agg(F.count("*").alias("orders"), F.sum("amount").alias("total"))
"""

COPY = """
    sources:
      orders: {topic: orders, value: {format: json, schema: {id: long}}, on_error: drop}
    sinks:
      copies: {sql: SELECT idd FROM orders, topic: copies}
"""

BOOKS = """
    conf: {{spark.sql.shuffle.partitions: 2}}
    sources:
      {other}: {{topic: {other}, value: {{format: json, schema: {{id: long}}}}}}
      {another}: {{topic: {another}, value: {{format: json, schema: {{id: long}}}}}}
    sinks:
      copies: {{sql: SELECT id FROM fees, topic: copies_of_fees}}
"""

HARBOUR = """
    sources:
      traffic: {pattern: "harbour[.].*|__.*", value: {format: json, schema: {id: long}}}
    sinks:
      copies: {sql: SELECT id FROM traffic, topic: copies_of_traffic}
"""


FROM_NOW_ON = """
    sources:
      calls: {topic: calls, value: {format: json, schema: {id: long}}, starting: latest}
    sinks:
      copies: {sql: SELECT id FROM calls, topic: copies_of_calls}
"""


TICKS = """
    sources: {ticks: {rate: 20}}
    sinks: {shown: {sql: SELECT value FROM ticks, console: {}}}
"""


FILES = """
    checkpoint: checkpoints
    sources:
      events: {files: %s, format: json, schema: {id: long}}
    sinks:
      kept: {from: events, parquet: %s}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tidelog", "pipeline", *map(str, arguments)]


def tidelog(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert ran.returncode == code, (ran.returncode, ran.stdout, ran.stderr)
    return ran


def pipeline_file(directory: Path, name: str, text: str) -> Path:
    (directory / name).write_text(dedent(text), encoding="utf-8")
    return directory / name


def all_of(broker: BrokerProcess, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
    """Every record of a topic that is committed."""
    with Consumer[bytes, bytes](broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        ends = consumer.end_offsets(consumer.assignment)
        found: list[ConsumerRecord[bytes, bytes]] = []

        def at_end() -> bool:
            found.extend(consumer.poll(0.2))
            return all(consumer.positions().get(each, 0) >= end for each, end in ends.items())

        eventually(at_end, f"the end of {topic}", within_s=60)
        return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def fill(broker: BrokerProcess) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=2)
        admin.create_topic("products", partitions=1, configs={"cleanup.policy": "compact"})
    with Producer[bytes, bytes](broker.bootstrap) as producer:
        for product, name in (("p0", "old"), ("p0", "zero"), ("p1", "one"), ("p2", "gone")):
            producer.send("products", json.dumps({"name": name}).encode(), key=product.encode())
        producer.send("products", None, key=b"p2")
        for at in range(30):
            order = {"id": at, "product": f"p{at % 3}", "amount": 1.5}
            producer.send("orders", json.dumps(order).encode(), key=str(at).encode())
        producer.send("orders", b"{nonsense", key=b"bad", headers=[("trace", b"7")], timestamp_ms=1772323200123)
        producer.send("orders", b'{"id": 1, "amount": "12,50"}')


class Events:
    """The JSON lines of a pipeline that runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, query: str) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines() if line[-1:] == "}"]
        return [event for event in events if event["query"] == query and event["event"] == "batch"]

    def rows(self, query: str) -> int:
        return max((int(event["rows"]) for event in self.of(query)), default=0)

    def both_have(self, rows: int) -> bool:
        return self.rows("sales") >= rows and self.rows("dead-letters.orders") >= rows


@pytest.mark.timeout(900)
def test_a_pipeline_from_its_first_run_to_its_reset(broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker)
    pipeline_file(tmp_path, "names_beside_sales.py", "def shout(name): return name.upper()\n")
    file = pipeline_file(tmp_path, "sales.py", SALES)
    state = ("--dir", tmp_path / "state")
    brokers = ("--bootstrap", broker.bootstrap)
    port = free_port()
    events = Events(tmp_path / "events")
    with (
        (tmp_path / "events").open("w") as out,
        subprocess.Popen(
            command("run", file, *brokers, *state, "--json", "--metrics-port", port),
            stdout=out,
            cwd=tmp_path,
            start_new_session=True,
        ) as runs,
    ):
        eventually(lambda: events.both_have(32) or runs.poll() is not None, "both queries' batches", within_s=600)
        assert "runs already" in tidelog("once", file, *brokers, *state, code=1).stderr
        assert "runs already" in tidelog("reset", file, "--yes", *state, code=1).stderr
        (known,) = json.loads(tidelog("list", "--json", *state).stdout)
        assert (known["name"], known["pid"]) == ("sales", runs.pid)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            metrics = reply.read().decode()
        assert 'tidelog_pipeline_lag_records{pipeline="sales",query="sales"} 0' in metrics
        os.killpg(runs.pid, signal.SIGTERM)  # as `timeout` does
        assert runs.wait(300) == 0
    latest = {record.key: record.value for record in all_of(broker, "sales")}
    assert latest == {
        b"ZERO": b'{"name":"ZERO","orders":10,"total":15.0}',
        b"ONE": b'{"name":"ONE","orders":10,"total":15.0}',
    }
    check_dead_letters(broker, file, brokers, state)


def check_dead_letters(broker: BrokerProcess, file: Path, brokers: tuple[Any, ...], state: tuple[Any, ...]) -> None:
    letters = {record.value: dict(record.headers) for record in all_of(broker, "sales.dead-letters")}
    assert len(letters) == 2
    assert letters[b"{nonsense"]["trace"] == b"7"
    assert letters[b"{nonsense"]["tidelog.topic"] == b"orders"
    assert letters[b"{nonsense"]["tidelog.timestamp"] == b"1772323200123"
    assert letters[b'{"id": 1, "amount": "12,50"}']["tidelog.error"] == b'value: field amount is "12,50", not a double'

    before = len(all_of(broker, "orders"))
    assert len(json.loads(tidelog("replay", file, *brokers, "--dry-run", "--json").stdout)) == 2
    assert "2 records were sent back" in tidelog("replay", file, *brokers).stderr
    assert "0 records were sent back" in tidelog("replay", file, *brokers).stderr
    back = all_of(broker, "orders")
    assert len(back) == before + 2
    assert [record.headers for record in back if record.value == b"{nonsense"] == [(("trace", b"7"),)] * 2

    ran = tidelog("once", file, *brokers, *state)
    assert "dead-letters.orders: done" in ran.stdout
    assert len(all_of(broker, "sales.dead-letters")) == 4, "it went on where it was, and they are malformed again"
    (status,) = json.loads(tidelog("status", "sales", "--json", *state).stdout)
    assert {query["query"]: query["state"] for query in status["queries"]} == {
        "sales": "done",
        "dead-letters.orders": "done",
        "dead-letters.products": "done",
    }
    assert "begins anew" in tidelog("reset", "sales", "--yes", *state).stdout
    assert json.loads(tidelog("list", "--json", *state).stdout) == []


@pytest.mark.timeout(900)
def test_sources_come_and_go_and_dead_letters_go_on(broker: BrokerProcess, tmp_path: Path) -> None:
    brokers, state = ("--bootstrap", broker.bootstrap), ("--dir", tmp_path / "state")
    with Admin(broker.bootstrap) as admin:
        for topic in ("rents", "fees", "gifts"):
            admin.create_topic(topic, partitions=1)
    with Producer[bytes, bytes](broker.bootstrap) as producer:
        producer.send("fees", b'{"id": 1}')
        producer.send("fees", b"{of fees")
        producer.send("rents", b"{of rents")
        producer.flush()
        file = pipeline_file(tmp_path, "books.yaml", BOOKS.format(other="rents", another="fees"))
        tidelog("once", file, *brokers, *state)
        producer.send("fees", b"{of fees again")
        producer.send("rents", b"{of rents again")
        producer.send("gifts", b"{of gifts")
        producer.flush()
    pipeline_file(tmp_path, "books.yaml", BOOKS.format(other="fees", another="gifts"))
    tidelog("once", file, *brokers, *state)
    letters = [
        (dict(record.headers)["tidelog.source"], record.value) for record in all_of(broker, "books.dead-letters")
    ]
    assert sorted(letters) == [
        (b"fees", b"{of fees"),
        (b"fees", b"{of fees again"),
        (b"gifts", b"{of gifts"),
        (b"rents", b"{of rents"),
    ], "what is new begins, what stays goes on, and what is gone is not read"
    with Admin(broker.bootstrap) as admin:
        groups = {group: admin.list_group_offsets(f"books.dead-letters.{group}") for group in ("fees", "gifts")}
    assert {group: [at.offset for at in offsets.values()] for group, offsets in groups.items()} == {
        "fees": [3],
        "gifts": [1],
    }


@pytest.mark.timeout(900)
def test_a_pattern_means_neither_dead_letters_nor_decisions(broker: BrokerProcess, tmp_path: Path) -> None:
    with Admin(broker.bootstrap) as admin:
        for topic in ("harbour.ships", "harbour.pilots"):
            admin.create_topic(topic, partitions=1)
    with Producer[bytes, bytes](broker.bootstrap) as producer:
        producer.send("harbour.ships", b"{sunk")
        producer.send("harbour.ships", b'{"id": 1}')
        producer.send("harbour.pilots", b'{"id": 2}')
    file = pipeline_file(tmp_path, "harbour.yaml", HARBOUR)
    for _ in range(2):
        tidelog("once", file, "--bootstrap", broker.bootstrap, "--dir", tmp_path / "state")
        assert [record.value for record in all_of(broker, "harbour.dead-letters")] == [b"{sunk"]
    assert sorted(record.value or b"" for record in all_of(broker, "copies_of_traffic")) == [b'{"id":1}', b'{"id":2}']


@pytest.mark.timeout(900)
def test_from_now_on_is_the_same_moment_for_all_queries(broker: BrokerProcess, tmp_path: Path) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("calls", partitions=1)
    file = pipeline_file(tmp_path, "answers.yaml", FROM_NOW_ON)
    with Producer[bytes, bytes](broker.bootstrap) as producer:
        for at in range(3):
            producer.send("calls", b"{before %d" % at)
            producer.send("calls", b'{"id": %d}' % at)
            producer.flush()
            tidelog("once", file, "--bootstrap", broker.bootstrap, "--dir", tmp_path / "state")
    assert [record.value for record in all_of(broker, "copies_of_calls")] == [b'{"id":1}', b'{"id":2}']
    assert [record.value for record in all_of(broker, "answers.dead-letters")] == [b"{before 1", b"{before 2"]


@pytest.mark.timeout(600)
def test_a_column_that_is_not_there_is_told_in_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, "copy.yaml", COPY)
    ran = tidelog("once", file, "--bootstrap", broker.bootstrap, "--dir", tmp_path / "state", code=1)
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("tidelog: ")]
    assert line.startswith("tidelog: copies: A column")
    assert "`idd` cannot be resolved. Did you mean one of the following? [`id`]" in line
    assert "\tat " not in ran.stderr + ran.stdout, "Java's frames"
    assert len(ran.stderr.splitlines()) < 10


@pytest.mark.timeout(600)
def test_a_topic_that_is_missing_ends_what_runs_once(broker: BrokerProcess, tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, "copy.yaml", COPY.replace("topic: orders", "topic: nowhere").replace("idd", "id"))
    ran = tidelog("once", file, "--bootstrap", broker.bootstrap, "--dir", tmp_path / "state", code=1)
    assert "tidelog: copies: TopicMissing: topic nowhere does not exist" in ran.stderr
    assert "it is started again" not in ran.stdout + ran.stderr


@pytest.mark.timeout(600)
def test_a_lost_java_is_told_in_one_line(tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, "ticks.yaml", TICKS)
    started = command("run", file, "--dir", tmp_path / "state", "--json")
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as runs:
        assert runs.stdout is not None
        values = (json.loads(line)["row"]["value"] for line in runs.stdout if '"event": "row"' in line)
        assert len(set(islice(values, 20))) == 20
        for listing in Path(f"/proc/{runs.pid}/task").glob("*/children"):
            for child in listing.read_text().split():
                if b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
        told = runs.communicate()[1]
    assert runs.returncode == 1
    (line,) = [line for line in told.splitlines() if "ticks: starting" not in line]
    assert line.startswith("tidelog: Spark's Java process has ended")


def test_what_needs_no_spark_takes_none(tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, "copy.yaml", COPY)
    no_java = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    ran = subprocess.run(command("validate", file), env=no_java, capture_output=True, text=True, check=True)
    assert "copies  sink: topic    orders" in ran.stdout
    wrong = pipeline_file(tmp_path, "wrong.yaml", COPY.replace("FROM orders", "FROM order"))
    assert "no source or view 'order': did you mean 'orders'" in tidelog("validate", wrong, code=2).stderr
    assert "there is no file" in tidelog("run", tmp_path / "none.py", code=2).stderr
    assert "no pipeline 'sales' has run here" in tidelog("status", "sales", "--dir", tmp_path, code=1).stderr
    assert tidelog("status", "--dir", tmp_path, "--json").stdout == "[]\n"


def test_a_pipeline_that_was_killed_is_told_to_be_stopped(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path, "copy")
    with directory.locked():
        directory.claim(tmp_path / "copy.yaml")
        directory.save_status({"queries": [asdict(Figures("out", state=state)) for state in ("running", "failed")]})
    (told,) = json.loads(tidelog("status", "copy", "--dir", tmp_path, "--json").stdout)
    assert [query["state"] for query in told["queries"]] == ["stopped", "failed"]
    assert "stopped" in tidelog("status", "copy", "--dir", tmp_path).stdout


@pytest.mark.timeout(600)
def test_a_run_guards_and_notes_where_its_checkpoints_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.json").write_text('{"id": 1}\n', encoding="utf-8")
    output = tmp_path / "checkpoints" / "files" / "output"
    file = pipeline_file(tmp_path, "files.yaml", FILES % (tmp_path / "events", output))
    state = ("--dir", tmp_path / "state")
    checkpoint = tmp_path / "checkpoints" / "files" / "kept"
    with PipelineDirectory(tmp_path / "other", "files").locked_elsewhere([checkpoint]):
        assert "runs already" in tidelog("once", file, *state, code=1).stderr
    tidelog("once", file, *state)
    assert (checkpoint / "commits" / "0").exists()
    monkeypatch.chdir("/")
    assert "begins anew" in tidelog("reset", file, "--yes", *state).stdout
    assert not checkpoint.exists()
    assert list(output.glob("*.parquet"))


def test_a_reset_takes_checkpoints_elsewhere_along_or_says_why_not(tmp_path: Path) -> None:
    directory, checkpoint = PipelineDirectory(tmp_path / "state", "copy"), tmp_path / "elsewhere" / "copy" / "copies"
    checkpoint.mkdir(parents=True)
    with directory.locked():
        directory.claim(tmp_path / "copy.yaml", [f"file://{checkpoint}"])
    with directory.locked_elsewhere([checkpoint]):  # by a run with another --dir
        assert "runs already" in tidelog("reset", "copy", "--yes", "--dir", tmp_path / "state", code=1).stderr
    assert "begins anew" in tidelog("reset", "copy", "--yes", "--dir", tmp_path / "state").stdout
    assert not checkpoint.exists()
    with directory.locked():
        directory.claim(tmp_path / "copy.yaml", ["s3a://bucket/copy/copies"])
    refused = tidelog("reset", "copy", "--yes", "--dir", tmp_path / "state", code=1).stderr
    assert "delete s3a://bucket/copy/copies yourself" in refused
    assert directory.exists()


def test_no_broker_is_one_line_and_a_code_of_its_own(tmp_path: Path) -> None:
    file = pipeline_file(tmp_path, "copy.yaml", COPY.replace("drop", "dead-letter"))
    ran = tidelog("once", file, "--bootstrap", f"127.0.0.1:{free_port()}", "--dir", tmp_path / "state", code=3)
    assert "no broker could be reached" in ran.stderr.splitlines()[-1]
