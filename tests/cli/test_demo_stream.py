from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tidelog.cli.demo_events import CATEGORIES, CLICKS, ORDERS, Event, events
from tidelog.cli.demo_report import OutOfOrder, Report
from tidelog.client.fetching import ConsumerRecord
from tidelog.testing.eventually import eventually
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

P = TopicPartition(ORDERS, 0)


def record_of(event: Event, offset: int = 0) -> ConsumerRecord:
    return ConsumerRecord(event.topic, 0, offset, event.timestamp_ms, event.key, event.value, ())


def test_the_same_seed_makes_the_same_events() -> None:
    assert list(events(500, 1, 1000)) == list(events(500, 1, 1000))
    assert list(events(500, 1, 1000)) != list(events(500, 2, 1000))
    assert list(events(500, 1, 1000)) == list(islice(events(10_000, 1, 1000), 500))


def test_events_look_like_a_shop() -> None:
    made = list(events(4000, 7, 1000))
    topics = Counter(event.topic for event in made)
    assert topics == {CLICKS: 3000, ORDERS: 1000}
    orders = [json.loads(event.value) for event in made if event.topic == ORDERS]
    assert {order["category"] for order in orders} == set(CATEGORIES)
    assert {order["currency"] for order in orders} == {"EUR", "USD", "GBP", "CHF"}
    assert all(order["amount_cents"] > 0 and 1 <= order["quantity"] <= 3 for order in orders)
    assert len({order["customer"] for order in orders}) > 300
    assert [json.loads(event.value)["event"] for event in made] == list(range(4000))


def test_the_click_before_an_order_is_its_checkout() -> None:
    made = [json.loads(event.value) for event in events(400, 7, 1000)]
    for *clicks, checkout, order in zip(*[iter(made)] * 4, strict=True):
        assert (checkout["page"], checkout["session"]) == ("checkout", order["session"])
        assert all(click["page"] != "checkout" for click in clicks)


def test_a_report_adds_up() -> None:
    report = Report()
    made = [event for event in events(400, 7, 0) if event.topic == ORDERS]
    for event in made:
        report.note_sent(P, event.value)
    complete = [report.complete]
    for event in made:
        report.note_received(P, record_of(event))
    assert [*complete, report.complete] == [False, True]
    assert sum(report.orders.values()) == 100
    assert report.revenue_rows()[-1][:2] == ["all", "100"]


@pytest.mark.parametrize("order", [[1], [0, 0], [0, 1, 2]])
def test_a_report_notices_what_is_swapped_repeated_or_made_up(order: list[int]) -> None:
    report = Report()
    first, second, third = (event for event in events(12, 7, 0) if event.topic == ORDERS)
    for event in (first, second):
        report.note_sent(P, event.value)
    *good, bad = order
    for at in good:
        report.note_received(P, record_of((first, second, third)[at], at))
    with pytest.raises(OutOfOrder, match=r"demo\.orders-0: the record at offset"):
        report.note_received(P, record_of((first, second, third)[bad], bad))


def demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", "demo", "--without-spark", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )


def test_the_demo_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = demo(tmp_path, "--records", "3000")
    assert done.returncode == 0, done.stderr
    assert "every record came back, and in order in every partition" in done.stdout
    assert re.search(r"3,000 records .* records/s", done.stdout)
    assert "kitchen" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_gives_its_result_to_programs(tmp_path: Path) -> None:
    done = demo(tmp_path, "--records", "1000", "--seed", "5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["records"], result["complete"]) == (1000, True)
    assert set(result["revenue_euro_cents"]) <= set(CATEGORIES)


def test_the_demo_can_leave_its_broker_running(tmp_path: Path) -> None:
    done = demo(tmp_path, "--records", "100", "--keep")
    assert done.returncode == 0, done.stderr
    found = re.search(r"^  kill (\d+)", done.stdout, re.MULTILINE)
    assert found is not None
    pid = int(found[1])
    address = re.search(r"TIDELOG_BOOTSTRAP=(\S+)", done.stdout)
    assert address is not None
    try:
        listed = subprocess.run(
            [sys.executable, "-m", "tidelog", "topic", "list", "--json", "--bootstrap", address[1]],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [topic["name"] for topic in json.loads(listed.stdout)] == [CLICKS, ORDERS]
    finally:
        os.kill(pid, signal.SIGTERM)
    host, _, port = address[1].partition(":")
    eventually(lambda: not listens(host, int(port)), "the broker to stop")


def listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
