"""The bytes in which members of a classic group tell each other what they want and what they get.

Other clients fill them too. What cannot be read counts as a member that wants nothing: one bad member must not keep the
others from reading.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.assign import Subscriber
from tidelog.types import TopicPartition
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.errors import WireError
from tidelog.wire.stored.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog.wire.stored.consumer_protocol import TopicPartition as OwnedTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

M = TypeVar("M", ConsumerProtocolSubscription, ConsumerProtocolAssignment)

PROTOCOL_TYPE = "consumer"

_VERSION = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SUBSCRIPTION_VERSION = 3
# The oldest that everybody reads; later ones say nothing more.
_ASSIGNMENT_VERSION = 0


class Claim(NamedTuple):
    """What a member says it owned, and since which generation."""

    owned: Mapping[str, list[int]]
    generation: int = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def subscription_bytes(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    *,
    rack: str | None = None,
    user_data: bytes | None = None,
) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[OwnedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(owned).items()],
        generation_id=generation,
        rack_id=rack,
    )
    return _VERSION.pack(_SUBSCRIPTION_VERSION) + to_bytes(message, _SUBSCRIPTION_VERSION)


def read_subscription(metadata: bytes, instance_id: str | None, *, sticky_data: bool) -> Subscriber[str]:
    """With `sticky_data` the claims are read as the eager sticky assignor's: its members own nothing when they join."""
    message = _read(ConsumerProtocolSubscription, metadata)
    if message is None:
        return Subscriber(frozenset(), instance_id=instance_id)
    claim = Claim(
        {owned.topic: list(owned.partitions) for owned in message.owned_partitions},
        message.generation_id,
    )
    if sticky_data and not claim.owned and message.user_data:
        claim = read_sticky_data(bytes(message.user_data)) or claim
    return Subscriber(frozenset(message.topics), claim.owned, claim.generation, instance_id)


def assignment_bytes(share: Mapping[str, Iterable[int]]) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(share.items())
        ]
    )
    return _VERSION.pack(_ASSIGNMENT_VERSION) + to_bytes(message, _ASSIGNMENT_VERSION)


def read_assignment(data: bytes) -> frozenset[TopicPartition] | None:
    """None: these bytes are not an assignment. No bytes at all are an empty one."""
    if not data:
        return frozenset()
    message = _read(ConsumerProtocolAssignment, data)
    if message is None:
        return None
    return frozenset(
        TopicPartition(topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions
    )


def sticky_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """What a member that had to give up everything before it joined says it had: Kafka's own format."""
    topics = by_topic(owned)
    out = bytearray(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        name = topic.encode()
        out += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
    out += _INT32.pack(generation)
    return bytes(out)


def read_sticky_data(data: bytes) -> Claim | None:
    try:
        (count,) = _INT32.unpack_from(data)
        position = _INT32.size
        owned: dict[str, list[int]] = {}
        for _ in range(count):
            (length,) = _VERSION.unpack_from(data, position)
            name = struct.unpack_from(f">{length}s", data, position + 2)[0].decode()
            position += 2 + length
            (numbers,) = _INT32.unpack_from(data, position)
            if not 0 <= numbers <= len(data) // 4:
                return None
            owned[name] = list(struct.unpack_from(f">{numbers}i", data, position + 4))
            position += 4 + 4 * numbers
        # The first version of the format ends here.
        generation = _INT32.unpack_from(data, position)[0] if len(data) - position >= _INT32.size else -1
    except (struct.error, UnicodeDecodeError):
        return None
    return Claim(owned, generation)


def _read(kind: type[M], data: bytes) -> M | None:
    """A newer version than is known here is read as the newest known one: fields are only ever added at the end."""
    if len(data) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        return None
    try:
        return decode(kind, data, min(version, kind.VERSIONS.last), _VERSION.size)
    except WireError:
        return None
