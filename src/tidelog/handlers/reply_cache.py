"""Encoded replies that stay the same until the cluster changes.

Clients ask for all metadata every few minutes and whenever anything goes wrong, all at once. With many partitions the
encoding takes milliseconds of the event loop, for the same bytes each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.codec import to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tidelog.wire.declare import Message

ENTRIES_MAX = 32
"""One per API version and listener in use; a few are enough."""


class EncodedReply(NamedTuple):
    """A reply's body, ready to be sent."""

    body: bytes


class ReplyCache:
    def __init__(self) -> None:
        self._image_version = -1
        self._replies: dict[Hashable, EncodedReply] = {}

    def get(self, image_version: int, version: int, key: Hashable, make: Callable[[], Message]) -> EncodedReply:
        """The encoding, in API version `version`, of what `make` says while the image has `image_version`."""
        if image_version != self._image_version or len(self._replies) >= ENTRIES_MAX:
            self._image_version = image_version
            self._replies.clear()
        found = self._replies.get((version, key))
        if found is None:
            found = self._replies[version, key] = EncodedReply(to_bytes(make(), version))
        return found
