"""Topics for the bench, made and removed over the wire."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode
from tidelog.testing.raw_client import RawClient
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREATE_VERSION = 4
_DELETE_VERSION = 3
_TIMEOUT_S = 120.0
_TIMEOUT_MS = 120_000


def create(port: int, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
    with RawClient(port, timeout_s=_TIMEOUT_S) as client:
        result = client.call(request, _CREATE_VERSION, CreateTopicsResponse).topics[0]
    if result.error_code:
        raise RuntimeError(f"topic {name} was not created: {ErrorCode(result.error_code).name}")


@contextmanager
def topic(port: int, name: str, partitions: int = 1) -> Iterator[str]:
    """A topic for as long as the block lasts."""
    create(port, name, partitions)
    yield name
    with RawClient(port, timeout_s=_TIMEOUT_S) as client:
        client.call(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS), _DELETE_VERSION, DeleteTopicsResponse
        )
