"""Puts requests to the group coordinator and shapes what comes back: one group, or several gathered into one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tidelog.coordinators.groups.topics import Caller
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Waiting
from tidelog.wire.declare import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.handlers.handler import Context
    from tidelog.storage.verification import Guard
    from tidelog.wire.declare import Struct

R = TypeVar("R", bound=Message)


class Question(NamedTuple):
    """What one group is asked, and the part of the reply that says it could not be."""

    group_id: str
    request: Message
    refused: Callable[[BrokerError], Struct]


class _Round(Generic[R]):
    """Questions whose answers make up one reply."""

    def __init__(self, questions: Sequence[Question], combine: Callable[[list[Any]], R]) -> None:
        self._answers: list[Any] = [None] * len(questions)
        self._left = len(questions)
        self._combine = combine
        self._abandons: list[Callable[[], None]] = []
        self.reply: R | None = None if questions else combine([])
        self.waiting: Waiting[R] = Waiting(self._abandon)

    def answer(self, index: int, answer: Struct) -> None:
        self._answers[index] = answer
        self._left -= 1
        if not self._left:
            self.reply = self._combine(self._answers)
            self.waiting.complete(self.reply)

    def on_abandon(self, abandon: Callable[[], None]) -> None:
        self._abandons.append(abandon)

    def _abandon(self) -> None:
        for abandon in self._abandons:
            abandon()


def ask(
    ctx: Context, questions: Sequence[Question], combine: Callable[[list[Any]], R], *, guard: Guard | None = None
) -> R | Waiting[R]:
    """Asks each group; `combine` makes the reply of the answers, in the order of the questions.

    `guard` is leave to store what is part of a transaction.
    """
    asked = _Round(questions, combine)
    topics = ctx.services.groups.known_topics
    caller = Caller(ctx.version, ctx.client_id or "", f"/{ctx.client_host}", topics, guard)
    for index, question in enumerate(questions):
        _put(ctx, question, caller, asked, index)
    return asked.waiting if asked.reply is None else asked.reply


def _put(ctx: Context, question: Question, caller: Caller, asked: _Round[R], index: int) -> None:
    def on_reply(reply: Struct | BrokerError) -> None:
        asked.answer(index, question.refused(reply) if isinstance(reply, BrokerError) else reply)

    try:
        shard = ctx.services.groups.coordinator.shard_of(question.group_id)
        ticket = shard.ask(question.request, caller, on_reply)
    except BrokerError as error:
        on_reply(error)
        return
    asked.on_abandon(lambda: shard.abandon(ticket))


def ask_one(ctx: Context, group_id: str, request: Message, refused: Callable[[BrokerError], R]) -> R | Waiting[R]:
    """Asks one group, whose answer is the reply. A group that members join needs a name."""
    if not group_id:
        return refused(BrokerError(ErrorCode.INVALID_GROUP_ID, "a group's id cannot be empty"))

    def only(answers: list[Any]) -> R:
        answer: R = answers[0]
        return answer

    return ask(ctx, [Question(group_id, request, refused)], only)
