"""What consumers of classic groups say of themselves inside bytes that are otherwise opaque to the coordinator.

Members speak to each other in these bytes, and any client may fill them with anything: what cannot be read is None.
"""

from __future__ import annotations

import struct

from tidelog.wire.codec import decode
from tidelog.wire.errors import WireError
from tidelog.wire.stored.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members divide the partitions of topics, as opposed to Connect's workers."""

_VERSION = struct.Struct(">h")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """A newer version than is known here is read as the newest known one: fields are only ever added at the end."""
    if len(metadata) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(metadata)
    if version < 0:
        return None
    version = min(version, ConsumerProtocolSubscription.VERSIONS.last)
    try:
        return decode(ConsumerProtocolSubscription, metadata, version, _VERSION.size)
    except WireError:
        return None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    subscription = read_subscription(metadata)
    return None if subscription is None else frozenset(subscription.topics)


def same_subscription(protocol_type: str, one: bytes, other: bytes) -> bool:
    """Whether a member that comes back wants what it wanted before.

    A consumer that starts anew owns nothing yet, so the bytes differ although its topics are the same.
    """
    if one == other:
        return True
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    topics = subscribed_topics(one)
    return topics is not None and topics == subscribed_topics(other)
