"""Writes to partitions as soon as anybody leads them, without the pauses that clients make before they ask again."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from bench.frames import PRODUCE_VERSION, exact_batch
from tidelog.errors import ErrorCode
from tidelog.testing.raw_client import RawClient
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.net.address import Address

_ALL = -1
_BATCH_BYTES = 100
_PARTITIONS_AT_ONCE = 100
_PAUSE_S = 0.05
_TIMEOUT_S = 60.0


class EagerWrites:
    """One record for each of some partitions, offered to some brokers until one of them takes it."""

    def __init__(self, addresses: Sequence[Address], topic: str, partitions: Sequence[int]) -> None:
        self._topic = topic
        self._left = set(partitions)
        self._batch = exact_batch(_BATCH_BYTES, int(time.time() * 1000)).data
        self._clients = [RawClient(address.port, address.host, timeout_s=_TIMEOUT_S) for address in addresses]
        self._threads: list[threading.Thread] = []
        self.acknowledged_s: list[float] = []

    def begin(self) -> None:
        for client in self._clients:
            self._threads.append(threading.Thread(target=self._offer, args=(client,), daemon=True))
            self._threads[-1].start()

    def end(self) -> None:
        """Waits until all are written, for as long as a client would."""
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()

    def _offer(self, client: RawClient) -> None:
        until = time.monotonic() + _TIMEOUT_S
        while self._left and time.monotonic() < until:
            offered = sorted(self._left)
            for start in range(0, len(offered), _PARTITIONS_AT_ONCE):
                self._write(client, offered[start : start + _PARTITIONS_AT_ONCE])
            time.sleep(_PAUSE_S)

    def _write(self, client: RawClient, partitions: Sequence[int]) -> None:
        data = [PartitionProduceData(index=number, records=self._batch) for number in partitions]
        request = ProduceRequest(
            acks=_ALL,
            timeout_ms=int(_TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        reply = client.call(request, PRODUCE_VERSION, ProduceResponse)
        now = time.time()
        for result in reply.responses[0].partition_responses:
            if result.error_code == ErrorCode.NONE:
                self._left.discard(result.index)
                self.acknowledged_s.append(now)
