"""What a coordinator's core hands to its runtime: records to append, replies to give out, effects, timers to set.

A core only decides. The runtime appends the records, gives each back to the core's `apply` before it asks for another
decision, and holds replies and effects until the high watermark has passed everything appended so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tidelog.wire.declare import Message, Struct

Ticket: TypeAlias = int
"""The runtime's name for a request that waits for its reply."""


class StoredRecord(NamedTuple):
    """One record for the internal topic. The version of its key is its type, as Kafka's readers expect."""

    key: Message
    key_version: int
    value: Message | None
    """None is a tombstone."""
    value_version: int


class Transaction(NamedTuple):
    """The transaction of a producer, as whoever stores records inside it names it."""

    producer_id: int
    producer_epoch: int
    guard: Any = None
    """Leave to begin it in the log, as the log has given it out."""


class LoadedBatch(NamedTuple):
    """A batch of the internal topic, as it is read."""

    records: Sequence[tuple[Message, Message | None]]
    transaction: Transaction | None = None
    """What the records are part of, or what the marker ends."""
    committed: bool | None = None
    """How the transaction ended, if this is the marker that says so."""


class Timer(NamedTuple):
    """Asks for `on_timer(key)` at a time. There is one timer for each key: setting it again moves it."""

    key: Hashable
    at_ms: int | None
    """None cancels."""


@dataclass(slots=True)
class Decision:
    records: list[StoredRecord] = field(default_factory=list)
    """Appended in this order as one batch, then each given to `apply`, before anything else is decided."""
    replies: list[tuple[Ticket, Struct]] = field(default_factory=list)
    """Given out once the high watermark has passed everything appended so far. A request for one of several groups
    is answered by that group's part of the response."""
    timers: list[Timer] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    """What is to be done elsewhere. Handed out in this order, once everything appended so far is safe; forgotten if the
    state is thrown away before."""
    transaction: Transaction | None = None
    """The records count only once this transaction of a client is committed."""

    def record(self, key: Message, value: Message | None, value_version: int = 0) -> None:
        """Adds a record with the newest version of its key, which is the one that stands for its kind."""
        self.records.append(StoredRecord(key, key.VERSIONS.last, value, value_version))

    def reply(self, ticket: Ticket, message: Struct) -> None:
        self.replies.append((ticket, message))

    def arm(self, key: Hashable, at_ms: int) -> None:
        self.timers.append(Timer(key, at_ms))

    def cancel(self, key: Hashable) -> None:
        self.timers.append(Timer(key, None))
