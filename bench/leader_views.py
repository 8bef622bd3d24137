"""When brokers begin to tell clients of new leaders: their answers to Metadata, taken often and read afterwards."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.testing.raw_client import RawClient
from tidelog.wire.codec import decode
from tidelog.wire.headers import response_body
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.net.address import Address

_METADATA_VERSION = 12
_LIST_VERSION = 0
_EVERY_S = 0.02
_CORRELATION_BYTES = 4


class _Answer(NamedTuple):
    at_s: float
    frame: bytes


class LeaderViews:
    """What each of some brokers says of all topics, again and again from `begin` to `end`.

    Of all topics, since brokers keep that answer as long as nothing changes: asking disturbs them little."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._clients = [RawClient(address.port, address.host, timeout_s=60.0) for address in addresses]
        self._answers: list[list[_Answer]] = [[] for _ in self._clients]
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        for client, answers in zip(self._clients, self._answers, strict=True):
            self._threads.append(threading.Thread(target=self._ask, args=(client, answers), daemon=True))
            self._threads[-1].start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()

    def _ask(self, client: RawClient, answers: list[_Answer]) -> None:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        while True:
            over = self._over.is_set()  # looked at before the last question: that one sees the end of it all
            client.send(request, _METADATA_VERSION)
            frame = client.receive_frame()
            if not answers or answers[-1].frame[_CORRELATION_BYTES:] != frame[_CORRELATION_BYTES:]:
                answers.append(_Answer(time.time(), frame))
            if over:
                return
            self._over.wait(_EVERY_S)

    def all_led_at(self, by: Collection[int]) -> float:
        """When the last of the brokers first told of leaders among `by` for all partitions. After `end`."""
        return max(self._first(answers, by) for answers in self._answers)

    @staticmethod
    def _first(answers: list[_Answer], by: Collection[int]) -> float:
        for at_s, frame in answers:
            reply = decode(
                MetadataResponse,
                memoryview(frame),
                _METADATA_VERSION,
                response_body(MetadataResponse, memoryview(frame), _METADATA_VERSION),
            )
            if all(partition.leader_id in by for topic in reply.topics for partition in topic.partitions):
                return at_s
        raise RuntimeError("a broker never told of leaders for all partitions")


class ControllerWait:
    """Asks some brokers what only a controller in power answers, until one does."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._clients = [RawClient(address.port, address.host, timeout_s=60.0) for address in addresses]

    def answered_at(self, within_s: float) -> float:
        request = ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None)
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            for client in self._clients:
                reply = client.call(request, _LIST_VERSION, ListPartitionReassignmentsResponse)
                if reply.error_code == ErrorCode.NONE:
                    return time.time()
            time.sleep(_EVERY_S / 2)
        raise TimeoutError(f"no broker became the controller within {within_s:g} s")

    def close(self) -> None:
        for client in self._clients:
            client.close()
