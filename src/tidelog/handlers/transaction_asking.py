"""Puts requests to the transaction coordinator and shapes what comes back: one answer, or several in one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Waiting
from tidelog.wire.declare import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.coordinators.runtime import ShardRuntime
    from tidelog.coordinators.transactions.shard import TransactionShard
    from tidelog.handlers.handler import Context
    from tidelog.wire.declare import Struct

R = TypeVar("R", bound=Message)

FENCED_HAS_A_NAME_SINCE = 2
"""The version of most requests of transactions since which a fenced producer is told PRODUCER_FENCED."""


class Question(NamedTuple):
    """What is asked of one transactional id, and the part of the reply that says it could not be."""

    transactional_id: str
    request: Struct
    refused: Callable[[BrokerError], Struct]


class _Round(Generic[R]):
    """Questions whose answers make up one reply."""

    def __init__(self, count: int, combine: Callable[[list[Any]], R]) -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._combine = combine
        self._abandons: list[Callable[[], None]] = []
        self.reply: R | None = None if count else combine([])
        self.waiting: Waiting[R] = Waiting(self._abandon)

    def put(
        self,
        index: int,
        find_shard: Callable[[], ShardRuntime[TransactionShard]],
        request: Struct,
        transaction_version: int,
        refused: Callable[[BrokerError], Struct],
    ) -> None:
        def on_reply(reply: Struct | BrokerError) -> None:
            self._answers[index] = refused(reply) if isinstance(reply, BrokerError) else reply
            self._left -= 1
            if not self._left:
                self.reply = self._combine(self._answers)
                self.waiting.complete(self.reply)

        try:
            shard = find_shard()
            ticket = shard.ask(request, transaction_version, on_reply)
        except BrokerError as error:
            on_reply(error)
            return
        self._abandons.append(lambda: shard.abandon(ticket))

    def _abandon(self) -> None:
        for abandon in self._abandons:
            abandon()


def ask(
    ctx: Context, questions: Sequence[Question], combine: Callable[[list[Any]], R], *, transaction_version: int = 0
) -> R | Waiting[R]:
    """Asks for each transactional id; `combine` makes the reply of the answers, in the order of the questions."""
    coordinator = ctx.services.transactions.coordinator
    asked = _Round(len(questions), combine)
    for index, question in enumerate(questions):
        transactional_id = question.transactional_id
        asked.put(
            index,
            lambda key=transactional_id: coordinator.shard_of(key),  # type: ignore[misc]
            question.request,
            transaction_version,
            question.refused,
        )
    return asked.waiting if asked.reply is None else asked.reply


def ask_everywhere(
    ctx: Context, request: Message, refused: Callable[[BrokerError], Struct], combine: Callable[[list[Any]], R]
) -> R | Waiting[R]:
    """Asks all shards on this broker."""
    shards = list(ctx.services.transactions.coordinator)
    asked = _Round(len(shards), combine)
    for index, shard in enumerate(shards):
        asked.put(index, lambda shard=shard: shard, request, 0, refused)  # type: ignore[misc]
    return asked.waiting if asked.reply is None else asked.reply


def fenced_as_known(code: int, version: int, since: int = FENCED_HAS_A_NAME_SINCE) -> int:
    """Older clients know a fenced producer by another error."""
    if code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
