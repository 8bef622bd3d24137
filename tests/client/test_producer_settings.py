"""How producers are told what to do: settings, partitioners, types."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer as Librdkafka
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import Admin, Producer, ProducerConfig
from tidelog.client.partitioner import RandomPartitioner, RoundRobinPartitioner, named_partitioner
from tidelog.client.producer_settings import ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent.parent


# --- settings ---


def test_keywords_win_over_the_config_and_the_config_over_defaults() -> None:
    config = ProducerConfig(linger_ms=7, batch_size=1000)
    producer = Producer("localhost", config, linger_ms=9)
    assert (producer.config.linger_ms, producer.config.batch_size) == (9, 1000)
    assert Producer("localhost").config == ProducerConfig()


def test_settings_may_come_with_kafkas_names_and_as_text() -> None:
    config = ProducerConfig.from_kafka(
        {
            "bootstrap.servers": "a:1,b:2",
            "linger.ms": "12",
            "compression.type": "zstd",
            "transactional.id": "me",
            "transaction.timeout.ms": 5000,
            "transaction.two.phase.commit.enable": "true",
            "acks": "all",
        }
    )
    assert config.linger_ms == 12
    assert config.transaction_two_phase_commit_enable
    assert Producer(config).config == config


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"transactional_id": ""}, "must not be empty"),
        ({"transactional_id": "x", "acks": 1}, "needs acks=all"),
        ({"transactional_id": "x", "enable_idempotence": False}, "enable_idempotence"),
        ({"transaction_two_phase_commit_enable": True}, "needs a transactional_id"),
        ({"transaction_timeout_ms": 0}, "must be positive"),
        ({"partitioner": "clever"}, "murmur2, random or round_robin"),
        ({"acks": 2}, "acks is all, 0 or 1"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ProducerConfig(**settings)


def test_every_setting_of_the_config_is_a_keyword_of_the_same_type() -> None:
    keywords = {name: each.__forward_arg__ for name, each in ProducerSettings.__annotations__.items()}
    config = {
        name: each for kind in ProducerConfig.__mro__ for name, each in getattr(kind, "__annotations__", {}).items()
    }
    # These two are parameters of their own.
    assert keywords.keys() == {field.name for field in fields(ProducerConfig)} - {"bootstrap_servers", "partitioner"}
    assert {name: config[name] for name in keywords} == keywords


# --- partitioners ---


@given(st.lists(st.integers(0, 50), min_size=1, unique=True), st.binary() | st.none())
def test_partitioners_choose_what_is_available(available: list[int], key: bytes | None) -> None:
    for partitioner in (RandomPartitioner(random.Random(1)), RoundRobinPartitioner()):
        assert partitioner("t", key, 51, available) in available


def test_round_robin_takes_turns_per_topic() -> None:
    turns = RoundRobinPartitioner()
    assert [turns("a", b"k", 3, range(3)) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert turns("b", b"k", 3, range(3)) == 0


def test_the_usual_partitioner_is_the_producers_own() -> None:
    assert named_partitioner("murmur2") is None


def test_a_partitioner_of_ones_own_is_asked_for_each_record(bootstrap: str, topic: str) -> None:
    asked: list[tuple[str, bytes | None, int, list[int]]] = []

    def last(topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        asked.append((topic, key, partition_count, list(available)))
        return partition_count - 1 if key != b"nowhere" else 99

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=4)
        async with Producer(bootstrap, partitioner=last) as producer:
            assert (await producer.send_and_wait(topic, b"v", key=b"k")).partition == 3
            assert (await producer.send_and_wait(topic, b"v", partition=1)).partition == 1
            with pytest.raises(ValueError, match="chose partition 99"):
                await producer.send(topic, b"v", key=b"nowhere")
        assert asked[0] == (topic, b"k", 4, [0, 1, 2, 3])
        async with Producer(bootstrap, partitioner="round_robin") as producer:
            places = [(await producer.send_and_wait(topic, b"v", key=b"same")).partition for _ in range(8)]
            assert places == [0, 1, 2, 3] * 2

    asyncio.run(scenario())


def test_keys_go_where_other_clients_send_them(bootstrap: str, topic: str) -> None:
    keys = [b"", b"a", b"customer-17", "schlüssel".encode(), bytes(range(256)), *(b"%d" % n for n in range(60))]
    theirs: dict[bytes, int] = {}

    def delivered(_error: Any, message: Any) -> None:
        theirs[message.key() or b""] = message.partition()

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=7)
        other = Librdkafka({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
        for key in keys:
            other.produce(topic, b"v", key=key, on_delivery=delivered)
        assert other.flush(60) == 0
        async with Producer(bootstrap) as producer:
            ours = {key: (await producer.send_and_wait(topic, b"v", key=key)).partition for key in keys}
        assert ours == theirs

    asyncio.run(scenario())


# --- types ---

TYPED = """
from typing import assert_type
from concurrent.futures import Future
from tidelog.client import Consumer, Producer, RecordMetadata
from tidelog.client import blocking
from tidelog.client.serializers import from_text, to_text

async def work() -> None:
    async with Producer("localhost", linger_ms=5, acks="all") as plain:
        assert_type(plain, Producer[bytes, bytes])
        assert_type(await plain.send_and_wait("t", b"v", key=b"k"), RecordMetadata)
        await plain.send("t", "text")  # error: arg-type
    async with Producer("localhost", value_serializer=to_text) as texts:
        assert_type(texts, Producer[bytes, str])
        await texts.send("t", "text")
        await texts.send("t", None)
        await texts.send("t", b"bytes")  # error: arg-type
    Producer("localhost", linger_msec=5)  # error: call-arg
    Producer("localhost", linger_ms="5")  # error: arg-type
    async with Consumer("localhost", value_deserializer=from_text) as consumer:
        async for record in consumer:
            assert_type(record.value, str | None)

def plain_work() -> None:
    with blocking.Producer("localhost", key_serializer=to_text) as producer:
        assert_type(producer, blocking.Producer[str, bytes])
        assert_type(producer.send("t", b"v", key="k"), Future[RecordMetadata])
    with blocking.Consumer("localhost", value_deserializer=from_text) as consumer:
        for record in consumer:
            assert_type(record.value, str | None)
"""


def test_a_type_checker_sees_what_goes_where(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, "--config-file", str(ROOT / "pyproject.toml"), str(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    expected = {
        (number, line.rpartition("# error: ")[2])
        for number, line in enumerate(TYPED.splitlines(), start=1)
        if "# error: " in line
    }
    told = [line for line in done.stdout.splitlines() if "program.py" in line and "error:" in line]
    found = {(int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]")) for line in told}
    assert found == expected, done.stdout
