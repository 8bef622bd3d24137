"""Topics for the clients to work on, made without any of the clients under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode
from tidelog.testing import RawClient
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def make_topic(bootstrap: str, name: str, partitions: int = 1, configs: Mapping[str, str] = {}) -> str:
    host, _, port = bootstrap.rpartition(":")
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    with RawClient(int(port), host) as client:
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
        (result,) = client.call(request, 7, CreateTopicsResponse).topics
    assert result.error_code == ErrorCode.NONE, result
    return name
