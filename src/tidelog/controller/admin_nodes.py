"""What Kafka's tools leave under `/admin` for the controller to do: moves of partitions, and preferred elections."""

from __future__ import annotations

import json
from typing import Any

from tidelog.types import TopicPartition
from tidelog.znodes.errors import NodeFormatError


def decode_partitions(node: str, data: bytes) -> list[TopicPartition]:
    """/admin/preferred_replica_election: the partitions to elect. Raises NodeFormatError."""
    return [_topic_partition(node, entry) for entry in _entries(node, data)]


def decode_moves(node: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """/admin/reassign_partitions: where partitions are to go. Raises NodeFormatError."""
    moves = {}
    for entry in _entries(node, data):
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not all(isinstance(each, int) for each in replicas):
            raise NodeFormatError(f"{node}: field 'replicas' must be a list of whole numbers")
        moves[_topic_partition(node, entry)] = tuple(replicas)
    return moves


def _entries(node: str, data: bytes) -> list[dict[str, Any]]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NodeFormatError(f"{node} does not hold JSON: {error}") from None
    entries = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NodeFormatError(f"{node} must be an object with a list of 'partitions'")
    return entries


def _topic_partition(node: str, entry: dict[str, Any]) -> TopicPartition:
    topic, partition = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str) or not isinstance(partition, int) or isinstance(partition, bool):
        raise NodeFormatError(f"{node}: every partition must have a 'topic' and a 'partition'")
    return TopicPartition(topic, partition)
