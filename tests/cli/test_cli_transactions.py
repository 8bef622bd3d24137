"""`tidelog transactions`, against a real broker on which transactions are open, ended, or hang."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from asking import RECENT_MS, create_topic, produce_request
from confluent_kafka import Producer

from tidelog.cli.running import run
from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.record import Record
from tidelog.testing import RawClient
from tidelog.types import ProducerId
from tidelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.testing import StartBroker

WAIT_S = 60


@pytest.fixture
def cli(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    return _cli(bootstrap, capsys)


def _cli(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*arguments: str, code: int = 0, as_text: bool = False) -> Any:
        flags = [] if as_text else ["--json"]
        assert run(["transactions", *arguments, "--bootstrap", bootstrap, *flags]) == code
        captured = capsys.readouterr()
        if code:
            return captured.err
        return captured.out if as_text else json.loads(captured.out)

    return call


@pytest.fixture
def name() -> str:
    return f"writer-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_transaction(bootstrap: str, raw: RawClient, topic: str, name: str) -> Iterator[Producer]:
    """One record in partition 1 of `topic`, in a transaction of `name`."""
    create_topic(raw, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(WAIT_S) == 0
    yield producer
    producer.abort_transaction(WAIT_S)


def test_an_open_transaction_is_shown_from_all_sides(
    cli: Callable[..., Any], open_transaction: Producer, topic: str, name: str
) -> None:
    assert open_transaction is not None
    (listed,) = cli("list", "--matching", name, "--state", "Ongoing")
    described = cli("describe", name)
    assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
    assert (described["producer_id"], described["state"]) == (listed["producer_id"], "Ongoing")
    assert described["partitions"] == [[topic, 1]]
    (producer,) = cli("producers", topic)
    assert (producer["partition"], producer["producer_id"]) == (1, listed["producer_id"])
    assert producer["transaction_start"] == 0
    assert cli("producers", f"{topic}:0") == []
    assert cli("find-hanging", topic, "--minutes", "0") == [], "its coordinator knows of it"
    assert cli("list", "--matching", name, "--longer-than", "3600000") == []
    assert cli("list", "--producer-id", str(listed["producer_id"])) == [listed]


def test_people_get_tables(cli: Callable[..., Any], open_transaction: Producer, topic: str, name: str) -> None:
    assert open_transaction is not None
    assert cli("list", "--matching", name, as_text=True).splitlines()[1].split()[:2] == [name, "Ongoing"]
    described = cli("describe", name, as_text=True).splitlines()
    assert described[1].split()[1] == "Ongoing"
    assert described[-1].strip() == f"{topic}:1"
    assert cli("producers", topic, as_text=True).splitlines()[1].split()[0] == "1"


def test_what_is_not_there_is_said(cli: Callable[..., Any], raw: RawClient, topic: str, name: str) -> None:
    create_topic(raw, topic, 2)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in cli("describe", name, code=1)
    assert "did you mean" in cli("producers", f"{topic}x", code=1)
    assert "not the number of a partition" in cli("producers", f"{topic}:first", code=1)
    assert "has partitions 0 to 1" in cli("producers", f"{topic}:7", code=1)
    assert "name one partition" in cli("abort", topic, "--start-offset", "0", code=1)
    assert "no transaction that began at offset 5" in cli("abort", f"{topic}:0", "--start-offset", "5", code=1)
    assert "INVALID_REGULAR_EXPRESSION" in cli("list", "--matching", "(", code=1)


def test_a_transaction_that_hangs_is_found_and_aborted(
    fresh_broker: StartBroker, capsys: pytest.CaptureFixture[str], topic: str
) -> None:
    """Without verification, a late write of a producer whom nobody knows leaves a transaction that nobody ends."""
    broker = fresh_broker({"transaction.partition.verification.enable": "false"})
    cli = _cli(broker.bootstrap, capsys)
    with RawClient(broker.port) as raw:
        create_topic(raw, topic)
        batch = build_batch(
            [Record(0, RECENT_MS, None, b"late")],
            producer_id=ProducerId(77),
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        request = produce_request(topic, batch)
        request.transactional_id = "gone"
        (written,) = raw.call(request, 9, ProduceResponse).responses
        assert written.partition_responses[0].error_code == ErrorCode.NONE
    assert cli("find-hanging", topic, "--minutes", "1000000") == []
    (hanging,) = cli("find-hanging", "--minutes", "0")
    assert (hanging["topic"], hanging["partition"], hanging["producer_id"]) == (topic, 0, 77)
    assert hanging["transactional_id"] is None
    assert "gone" not in cli("find-hanging", "--minutes", "0", as_text=True)
    aborted = cli("abort", f"{topic}:0", "--start-offset", str(hanging["transaction_start"]), as_text=True)
    assert aborted == f"aborted the transaction of producer 77 in {topic}:0\n"
    assert cli("find-hanging", "--minutes", "0") == []
