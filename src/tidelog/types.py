"""Plain values that every room speaks of. No behaviour beyond naming and printing them."""

from __future__ import annotations

import base64
import secrets
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""A record's place in one partition; `log end` is the offset the next record will take."""

LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
BrokerId = NewType("BrokerId", int)

TopicId = NewType("TopicId", bytes)
"""A topic's 16-byte identity: a re-created topic of the same name has another one (KIP-516)."""

ZERO_TOPIC_ID = TopicId(bytes(16))

NO_PRODUCER_ID = ProducerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def new_topic_id() -> TopicId:
    """A random version-4 UUID. Kafka reserves those whose text form starts with a dash."""
    while True:
        raw = bytearray(secrets.token_bytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        topic_id = TopicId(bytes(raw))
        if not format_topic_id(topic_id).startswith("-"):
            return topic_id


def format_topic_id(topic_id: TopicId) -> str:
    """Kafka's text form: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(text: str) -> TopicId:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"topic id {text!r} is not 16 bytes long")
    return TopicId(raw)
