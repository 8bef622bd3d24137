"""Messages between simulated machines: lost, late, repeated and overtaking each other, requests and answers alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.errors import PeerUnreachable

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Iterator

    from tidelog.testing.sim.timeline import SimLoop

_USUAL_S = (0.0005, 0.004)


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each message meets with each fate."""

    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    late_s_max: float = 6.0


CALM = Weather()


class Server(Protocol):
    loop: SimLoop

    def serve(self, request: Any, reply: Callable[[Any], None]) -> None:
        """Answers a request, now, later or never."""


class Network:
    def __init__(self, chance: random.Random, weather: Weather) -> None:
        self.weather = weather
        self.messages = 0
        self._chance = chance

    def storm(self, lost: float) -> None:
        self.weather = replace(self.weather, lost=lost)

    def ask(
        self, asker: SimLoop, server: Server, request: Any, within_s: float, *, forgotten_when_given_up: bool = False
    ) -> asyncio.Future[Any]:
        """The answer, or PeerUnreachable. Copies of the request may arrive long after that, unless they are
        `forgotten_when_given_up`, as on a connection that is closed then."""
        answer: asyncio.Future[Any] = asker.create_future()
        asker.call_later(within_s, _give_up, answer)
        for delay_s in self._copies():
            server.loop.call_later(delay_s, self._arrive, asker, server, request, answer, forgotten_when_given_up)
        return answer

    def _arrive(self, asker: SimLoop, server: Server, request: Any, answer: asyncio.Future[Any], forget: bool) -> None:
        if not (forget and answer.done()):
            server.serve(request, partial(self._return, asker, answer))

    def _return(self, asker: SimLoop, answer: asyncio.Future[Any], reply: Any) -> None:
        for delay_s in self._copies():
            asker.call_later(delay_s, _settle, answer, reply)

    def _copies(self) -> Iterator[float]:
        """After how long each copy of a message arrives."""
        chance, weather = self._chance, self.weather
        self.messages += 1
        for _ in range(2 if chance.random() < weather.repeated else 1):
            if chance.random() >= weather.lost:
                late = chance.random() < weather.late
                yield chance.uniform(*_USUAL_S) + (chance.uniform(0.0, weather.late_s_max) if late else 0.0)


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(PeerUnreachable("no answer"))
        answer.exception()  # nobody may be waiting any more


def _settle(answer: asyncio.Future[Any], reply: Any) -> None:
    if not answer.done():
        answer.set_result(reply)
