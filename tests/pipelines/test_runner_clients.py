"""One list of settings for all clients of a pipeline, and what each kind of client gets of it."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from tidelog.pipelines import Settings
from tidelog.pipelines.runner.clients import client_config, options_for, settings_for
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.source.options import SourceOptions

EVERYBODY, CONSUMERS, PRODUCERS = (
    {ClientConfig, ConsumerConfig, ProducerConfig},
    {ConsumerConfig},
    {ProducerConfig},
)


@pytest.mark.parametrize(
    ("name", "value", "kinds"),
    [
        ("bootstrap.servers", "b:9092", EVERYBODY),
        ("request.timeout.ms", 5000, EVERYBODY),
        ("security.protocol", "SASL_SSL", EVERYBODY),
        ("sasl.mechanism", "PLAIN", EVERYBODY),
        ("ssl.ca.location", "ca.pem", EVERYBODY),
        ("fetch.max.bytes", 1 << 20, CONSUMERS),
        ("client.rack", "a", CONSUMERS),
        ("isolation.level", "read_uncommitted", CONSUMERS),
        ("compression.type", "zstd", PRODUCERS),
        ("Linger.MS", 20, PRODUCERS),
        ("max.request.size", 2 << 20, PRODUCERS),
    ],
)
def test_who_gets_a_setting(name: str, value: Any, kinds: set[type[ClientConfig]]) -> None:
    kafka = Settings(kafka={name: value}).kafka
    for kind in (ClientConfig, ConsumerConfig, ProducerConfig):
        assert settings_for(kind, kafka) == ({name.lower(): value} if kind in kinds else {})
        assert options_for(kind, kafka) == ({f"kafka.{name.lower()}": str(value)} if kind in kinds else {})


def test_source_sink_and_clients_take_their_shares() -> None:
    kafka = {"bootstrap.servers": "b:9092", "compression.type": "zstd", "fetch.max.bytes": 1 << 20, "client.id": "shop"}
    source = SourceOptions.parse({"subscribe": "orders", **options_for(ConsumerConfig, kafka)})
    sink = SinkOptions.of({"topic": "orders", **options_for(ProducerConfig, kafka)})
    assert (source.consumer.fetch_max_bytes, source.consumer.client_id) == (1 << 20, "shop")
    assert (sink.producer.compression_type, sink.producer.client_id) == ("zstd", "shop")
    assert client_config(ClientConfig, kafka).client_id == "shop"
