from __future__ import annotations

import asyncio
import socket

import pytest
from scripted_broker import ScriptedBroker

from tidelog.client.backoff import Backoff
from tidelog.client.cluster import Cluster
from tidelog.client.config import ClientConfig
from tidelog.client.errors import BrokersUnreachable
from tidelog.client.reconnecting import ReconnectPace
from tidelog.net.address import Address

A, B, C = (Address("host", port) for port in (1, 2, 3))


def test_an_address_that_fails_is_left_alone_ever_longer() -> None:
    pace = ReconnectPace(Backoff(50, 1000))
    now_s, waits = 100.0, []
    for _ in range(7):
        pace.failed(A, now_s, chance=0.5)
        waits.append(pace.wait_s(A, now_s))
        now_s += waits[-1]
        assert pace.wait_s(A, now_s) == pytest.approx(0)
    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert pace.wait_s(B, 100.0) == 0, "the others are not to blame"
    pace.succeeded(A)
    pace.failed(A, now_s, chance=0.5)
    assert pace.wait_s(A, now_s) == pytest.approx(0.05), "one success, and it starts over"


def test_waits_are_spread() -> None:
    pace = ReconnectPace(Backoff(50, 1000))
    pace.failed(A, 0.0, chance=0.0)
    pace.failed(B, 0.0, chance=0.999)
    assert pace.wait_s(A, 0.0) < pace.wait_s(B, 0.0)


def test_whoever_has_not_failed_is_tried_first() -> None:
    pace = ReconnectPace(Backoff(50, 1000))
    pace.failed(A, 0.0)
    assert pace.ordered([A, B, C], 0.0) == [B, C, A]
    assert pace.ordered([A, B, C], 10.0) == [A, B, C], "when the wait is over the order is as given"


def test_every_address_is_tried_and_counted() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            dead = f"127.0.0.1:{unused.getsockname()[1]}"
        config = ClientConfig(reconnect_backoff_ms=1, reconnect_backoff_max_ms=1)
        async with ScriptedBroker({"t": 1}) as broker, Cluster(f"{dead},{broker.bootstrap}", config) as cluster:
            await cluster.refresh(["t"])
            metrics = cluster.metrics()
            assert (metrics.connections_failed, metrics.connections_opened, metrics.connections_open) == (1, 1, 1)
            asked = metrics.requests["METADATA"]
            assert asked.sent == asked.answered == metrics.metadata_refreshes == 2
            assert 0 < asked.time_mean_ms <= asked.time_max_ms
            assert metrics.requests_sent == 3
            assert metrics.bytes_sent > asked.bytes_sent > 0
            assert metrics.bytes_received > asked.bytes_received > 0
        assert cluster.metrics().connections_open == 0
        with pytest.raises(BrokersUnreachable) as caught:
            await Cluster([dead, broker.bootstrap], config).start()
        assert [address for address, _ in caught.value.failures] == [dead, broker.bootstrap]

    asyncio.run(scenario())
