"""How each client asks where a partition starts, ends, and was at some time."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
from typing import Any

import pytest
from client_drivers import Sent
from confluent_driver import ConfluentDriver, assigned_consumer
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from topics import make_topic

from tidelog.clock import SystemClock

# The library's annotations hide the class that its documentation names.
OffsetSpec: Any = importlib.import_module("confluent_kafka.admin").OffsetSpec

START_MS = SystemClock().now_ms() - 100_000
"""Records are one second apart from here on."""


@pytest.fixture
def dated(bootstrap: str, topic: str) -> str:
    """A topic of ten records, one second apart."""
    make_topic(bootstrap, topic)
    records = [Sent(b"%d" % number, timestamp_ms=START_MS + 1000 * number) for number in range(10)]
    ConfluentDriver().write(bootstrap, topic, records)
    return topic


def test_confluent_kafka(bootstrap: str, dated: str) -> None:
    with assigned_consumer(bootstrap, dated) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(dated, 0), timeout=30) == (0, 10)
        for time_ms, expected in ((0, 0), (START_MS + 3500, 4), (START_MS + 9000, 9), (START_MS + 9001, OFFSET_END)):
            (found,) = consumer.offsets_for_times([TopicPartition(dated, 0, time_ms)], timeout=30)
            assert found.offset == expected
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(dated, 0)
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 10),
        (OffsetSpec.max_timestamp(), 9),
        (OffsetSpec.for_timestamp(START_MS + 1), 1),
    ):
        assert admin.list_offsets({place: spec})[place].result(30).offset == expected


def test_kafka_python(bootstrap: str, dated: str) -> None:
    import kafka  # type: ignore[import-untyped]

    place = kafka.TopicPartition(dated, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        assert consumer.partitions_for_topic(dated) == {0}
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 10}
        found = consumer.offsets_for_times({place: START_MS + 3500})[place]
        assert (found.offset, found.timestamp) == (4, START_MS + 4000)
        assert consumer.offsets_for_times({place: START_MS + 9001})[place] is None
    finally:
        consumer.close()


def test_aiokafka(bootstrap: str, dated: str) -> None:
    import aiokafka  # type: ignore[import-untyped]

    async def ask() -> None:
        place = aiokafka.TopicPartition(dated, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 10}
            found = (await consumer.offsets_for_times({place: START_MS + 3500}))[place]
            assert (found.offset, found.timestamp) == (4, START_MS + 4000)
            assert (await consumer.offsets_for_times({place: START_MS + 9001}))[place] is None
        finally:
            await consumer.stop()

    asyncio.run(ask())


def test_kcat(bootstrap: str, dated: str) -> None:
    def ask(time_ms: int) -> str:
        command = ["kcat", "-b", bootstrap, "-Q", "-t", f"{dated}:0:{time_ms}"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    assert ask(START_MS + 3500) == f"{dated} [0] offset 4"
    assert ask(-2) == f"{dated} [0] offset 0"
    assert ask(-1) == f"{dated} [0] offset 10"
