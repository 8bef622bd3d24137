"""Every pipeline of examples/pipelines, run over records that are known, gives exactly what it should."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.client import OffsetSpec
from tidelog.client.blocking import Admin, Consumer, Producer
from tidelog.testing import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client.fetching import ConsumerRecord

pytestmark = pytest.mark.timeout(900)

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"
WITHIN_S = 800.0
"""For hanging, not for slowness."""

LINES = ["The tide comes in,", "the tide goes out.", "", "Logs stay where the tide is."]


def order(number: int, customer: str, product: str, cents: int, at: str) -> dict[str, Any]:
    return {"id": number, "customer": customer, "product": product, "cents": cents, "at": f"2026-03-01T{at}Z"}


ORDERS = [
    order(1, "ada", "tea", 350, "09:05:00"),
    order(2, "bob", "tea", 700, "09:59:59"),
    order(3, "ada", "mug", 1200, "10:00:00"),
    order(2, "bob", "tea", 700, "09:59:59"),  # sent twice by the shop
    order(4, "eve", "tea", 350, "10:30:00"),
    order(5, "ada", "tea", 350, "12:00:00"),  # closes the hours before, not its own
]
CUSTOMERS = [
    ("ada", {"name": "Ada", "city": "London"}),
    ("bob", {"name": "Bob", "city": "Oslo"}),
    ("ada", {"name": "Ada", "city": "Paris"}),
    ("eve", {"name": "Eve", "city": "Rome"}),
    ("eve", None),
]
CLICKS = [
    ("v1", "home", "09:00:00"),
    ("v1", "search", "09:20:00"),
    ("v1", "cart", "09:49:00"),
    ("v1", "home", "10:30:00"),
    ("v2", "home", "09:10:00"),
    ("v3", "home", "12:00:00"),
]
PAYMENTS = [
    (1, "c1", "DE", "09:00:00"),
    (2, "c1", "FR", "09:04:00"),
    (3, "c1", "DE", "09:05:00"),
    (4, "c1", "US", "09:09:59"),
    (5, "c2", "DE", "09:00:00"),
    (6, "c2", "FR", "09:05:00"),
    (7, "c2", "US", "09:10:01"),  # a second too late for the three
    (8, "c1", "GB", "09:10:00"),  # after an alert, counting begins anew
]
CHANGES: list[dict[str, Any]] = [
    {"op": "c", "before": None, "after": {"id": 1, "name": "Ada", "city": "London"}, "ts_ms": 1772323200000},
    {"op": "c", "before": None, "after": {"id": 2, "name": "Bob", "city": "Oslo"}, "ts_ms": 1772323201000},
    {
        "op": "u",
        "before": {"id": 1, "name": "Ada", "city": "London"},
        "after": {"id": 1, "name": "Ada", "city": "Paris"},
        "ts_ms": 1772409600000,
    },
    {"op": "d", "before": {"id": 2, "name": "Bob", "city": "Oslo"}, "after": None, "ts_ms": 1772409601000},
]
MALFORMED = b'{"id": 6, "customer": "ada", "product"'


class Stage:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory

    def records(self, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
        """All that is in it, as readers of committed records see it."""
        found: list[ConsumerRecord[bytes, bytes]] = []
        with Consumer[bytes, bytes](self.bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign_topics([topic], OffsetSpec.earliest())
            ends = consumer.end_offsets(consumer.assignment)
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                found += consumer.poll(1.0)
        return found

    def rows(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"null") for record in self.records(topic)]

    def dead_letters(self, pipeline: str) -> list[bytes | None]:
        return [record.value for record in self.records(f"{pipeline}.dead-letters")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker on which all examples have run, in one process, each with its records."""
    directory = tmp_path_factory.mktemp("examples")
    with BrokerProcess(directory / "broker") as broker:
        write_input(broker.bootstrap)
        command = [sys.executable, str(Path(__file__).parent / "run_pipelines_once.py"), broker.bootstrap]
        done = subprocess.run(
            [*command, str(directory / "state"), *map(str, example_files())],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield Stage(broker.bootstrap, directory)


def example_files() -> list[Path]:
    return sorted(path for path in EXAMPLES.iterdir() if path.suffix in {".py", ".yaml"})


def write_input(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        for topic in ("lines", "orders", "clicks", "payments", "shop.customers"):
            admin.create_topic(topic, partitions=2)
        admin.create_topic("customers", partitions=2, configs={"cleanup.policy": "compact"})
    with Producer(bootstrap) as producer:
        for line in LINES:
            producer.send("lines", line.encode())
        for each in ORDERS:
            producer.send("orders", encoded(each), key=each["customer"].encode())
        producer.send("orders", MALFORMED, key=b"ada")
        for customer, known in CUSTOMERS:
            producer.send("customers", None if known is None else encoded(known), key=customer.encode())
        for visitor, page, at in CLICKS:
            click = {"visitor": visitor, "page": page, "at": f"2026-03-01T{at}Z"}
            producer.send("clicks", encoded(click), key=visitor.encode())
        for number, card, country, at in PAYMENTS:
            payment = {"id": number, "card": card, "country": country, "cents": 100, "at": f"2026-03-01T{at}Z"}
            producer.send("payments", encoded(payment), key=card.encode())
        for change in CHANGES:
            key = str((change["after"] or change["before"])["id"]).encode()
            producer.send("shop.customers", encoded(change), key=key)
            if change["op"] == "d":
                producer.send("shop.customers", None, key=key)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def moment(text: str) -> str:
    return f"2026-03-01T{text}.000Z"


def test_all_examples_are_here() -> None:
    names = {path.name for path in example_files()}
    assert names == {
        "change_capture.py",
        "enrichment.py",
        "fraud_rule.py",
        "sessions.yaml",
        "windowed_sales.py",
        "word_count.yaml",
    }


def test_words_are_counted(stage: Stage) -> None:
    latest = {record.key: json.loads(record.value or b"") for record in stage.records("word-counts")}
    words = Counter(["the"] * 3 + ["tide"] * 3 + ["comes", "in", "goes", "out", "logs", "stay", "where", "is"])
    assert latest == {word.encode(): {"word": word, "count": count} for word, count in words.items()}


def test_hours_that_are_over_are_summed_up_once(stage: Stage) -> None:
    sales = sorted(stage.rows("sales-by-hour"), key=lambda row: (row["hour"], row["product"]))
    assert sales == [
        {"hour": moment("09:00:00"), "product": "tea", "orders": 2, "cents": 1050},
        {"hour": moment("10:00:00"), "product": "mug", "orders": 1, "cents": 1200},
        {"hour": moment("10:00:00"), "product": "tea", "orders": 1, "cents": 350},
    ]
    assert stage.dead_letters("windowed_sales") == [MALFORMED]


def test_visits_that_are_over_are_told_once(stage: Stage) -> None:
    visits = sorted(stage.rows("visits"), key=lambda row: (row["visitor"], row["began"]))
    assert visits == [
        {
            "visitor": "v1",
            "began": moment("09:00:00"),
            "last_click": moment("09:49:00"),
            "pages": 3,
            "first_page": "home",
            "last_page": "cart",
        },
        {
            "visitor": "v1",
            "began": moment("10:30:00"),
            "last_click": moment("10:30:00"),
            "pages": 1,
            "first_page": "home",
            "last_page": "home",
        },
        {
            "visitor": "v2",
            "began": moment("09:10:00"),
            "last_click": moment("09:10:00"),
            "pages": 1,
            "first_page": "home",
            "last_page": "home",
        },
    ]


def test_orders_know_their_customers(stage: Stage) -> None:
    known = {"ada": ("Ada", "Paris"), "bob": ("Bob", "Oslo"), "eve": (None, None)}
    expected = [
        {
            "customer": each["customer"],
            "id": each["id"],
            "product": each["product"],
            "cents": each["cents"],
            "name": known[each["customer"]][0],
            "city": known[each["customer"]][1],
        }
        for each in ORDERS
    ]
    found = stage.rows("orders-with-customers")
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
    assert stage.dead_letters("enrichment") == [MALFORMED]


def test_a_card_on_its_travels_is_told_of(stage: Stage) -> None:
    (alert,) = stage.records("alerts")
    assert alert.key == b"c1"
    assert json.loads(alert.value or b"") == {
        "card": "c1",
        "at": moment("09:09:59"),
        "countries": ["DE", "FR", "US"],
        "payments": [1, 2, 3, 4],
    }


def test_changes_become_parquet_by_day(stage: Stage) -> None:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    found = pq.read_table(stage.directory / "customers-history").to_pylist()
    rows = sorted((row["id"], str(row["at"]), row["change"], row["name"], row["city"], row["day"]) for row in found)
    assert rows == [
        (1, "2026-03-01 00:00:00+00:00", "insert", "Ada", "London", "2026-03-01"),
        (1, "2026-03-02 00:00:00+00:00", "update", "Ada", "Paris", "2026-03-02"),
        (2, "2026-03-01 00:00:01+00:00", "insert", "Bob", "Oslo", "2026-03-01"),
        (2, "2026-03-02 00:00:01+00:00", "delete", None, None, "2026-03-02"),
    ]


def test_the_table_behind_the_changes_is_a_query(stage: Stage) -> None:
    page = (EXAMPLES.parent.parent / "docs" / "pipeline-examples.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=stage.directory,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [["id", "name", "city"], ["1", "Ada", "Paris"]]
