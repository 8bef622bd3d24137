"""The judgement of what producers were promised can fail."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from delivery_ledger import Ledger, check_partition


def test_a_checker_that_cannot_fail_proves_nothing() -> None:
    ledger = Ledger(0)
    ledger.acknowledged[0] = {0: 0, 1: 1}
    stored: list[bytes | None] = [b"0:0:", b"0:1:"]
    check_partition(stored, [ledger], 0)
    for wrong in ([b"0:0:"], [b"0:0:", b"0:1:", b"0:1:"], [b"0:1:", b"0:0:"], [b"9:9:", b"0:0:", b"0:1:"]):
        with pytest.raises(AssertionError):
            check_partition(list(wrong), [ledger], 0)


def test_a_producer_reports_what_it_could_not_deliver() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1, "log_level": 0})
    ledger = Ledger(0)
    try:
        producer.produce("ledger", ledger.value(0), on_delivery=ledger.delivered)
    except KafkaException:
        pytest.fail("producing to a broker that is away fails only on delivery")
    assert producer.flush(20) == 0
    assert len(ledger.failed) == 1
