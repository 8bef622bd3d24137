"""Proof that the work was done: a fast broker that drops things is not fast."""

from __future__ import annotations

from typing import TypeVar

from bench.frames import CORRELATION_ID, FETCH_VERSION, PRODUCE_VERSION
from tidelog.records.record import iter_batches
from tidelog.testing.raw_client import RawClient
from tidelog.wire.declare import Message
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.produce import ProduceResponse

M = TypeVar("M", bound=Message)


class NotDoneError(Exception):
    """The peer answered, but did not do what it was asked."""


def check_produced(port: int, frame: bytes, records_before: int) -> None:
    """One more batch must come behind all the records that were sent before it."""
    reply = _ask(port, frame, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0]
    if reply.error_code or reply.base_offset != records_before:
        raise NotDoneError(
            f"the batch behind {records_before} records got offset {reply.base_offset}, error {reply.error_code}"
        )


def check_fetched(port: int, frame: bytes, chunk_bytes: int) -> None:
    """A chunk must be full of whole batches."""
    reply = _ask(port, frame, FetchResponse, FETCH_VERSION).responses[0].partitions[0]
    assert isinstance(reply.records, memoryview)
    whole = sum(len(batch.data) for batch in iter_batches(reply.records))
    if reply.error_code or whole != chunk_bytes:
        raise NotDoneError(f"{whole} bytes of batches came instead of {chunk_bytes}, error {reply.error_code}")


def _ask(port: int, frame: bytes, response: type[M], version: int) -> M:
    with RawClient(port) as client:
        client.send_bytes(frame)
        return client.receive(response, version, CORRELATION_ID)
