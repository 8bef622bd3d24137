"""How an application learns which partitions it gains and loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tidelog.types import TopicPartition


class RebalanceListener:
    """Override what you need, with plain methods or `async def`.

    They are called only while the application is inside `poll`, the iteration, `unsubscribe` or `close`, so that it is
    never in the middle of something else. What they raise is raised there.
    """

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:  # noqa: ARG002
        """These will be read from now on. Seek here to begin elsewhere than at the last commit."""
        return None

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:  # noqa: ARG002
        """These will be another member's. Commit here what is done."""
        return None

    def on_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These may be another member's already: commits will fail. As `on_revoked` unless overridden."""
        return self.on_revoked(partitions)
