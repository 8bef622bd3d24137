"""A day of the demo's shop that goes wrong in places, and what must come of it all the same.

Some records are malformed. Some come late, by minutes, and still count. Some come hours late, when nobody waits for
them any more. The ledger knows which, so that whatever a pipeline makes of the day can be checked to the last order.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.cli.demo_events import EURO_PERCENT, ORDERS, Event, events, moment

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW_MS: Final = 10 * 60_000
_DAY_MS: Final = 2 * 3600_000
"""Two hours: enough windows to look at."""
_LATE_MS: Final = (2 * 60_000, 8 * 60_000)
_TOO_LATE_MS: Final = 12 * 3600_000
_VISIT: Final = 4
"""Two clicks of anybody's, one to the checkout, and the order."""
_BROKEN_ORDERS: Final = 0.01
_BROKEN_CLICKS: Final = 0.005
_LATE: Final = 0.02
_TOO_LATE_ONE_IN: Final = 200


class Bought(NamedTuple):
    category: str
    euro_cents: int
    window_start_ms: int


@dataclass
class Ledger:
    """What was sent, and what must come of it."""

    sent: Counter[str] = field(default_factory=Counter)
    bought: dict[str, Bought] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    too_late: set[str] = field(default_factory=set)
    malformed: Counter[bytes] = field(default_factory=Counter)

    def windows(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Orders and euro cents by the start of the window and the category."""
        orders: Counter[tuple[int, str]] = Counter()
        cents: Counter[tuple[int, str]] = Counter()
        for each in self.bought.values():
            orders[each.window_start_ms, each.category] += 1
            cents[each.window_start_ms, each.category] += each.euro_cents
        return {key: (count, cents[key]) for key, count in orders.items()}


class Day(NamedTuple):
    on_time: list[Event]
    """In the order in which they come; those that are a little late are among them."""
    too_late: list[Event]
    """To be sent when the rest has been seen."""
    too_late_before_ms: int
    """Whoever has stopped waiting for this moment has stopped waiting for all of them."""
    ledger: Ledger


def day(count: int, seed: int, end_ms: int) -> Day:
    """About `count` events, whole visits of the shop, the last of them at `end_ms`."""
    visits = max(count // _VISIT, 2)
    step_ms = max(_DAY_MS // (visits * _VISIT), 1)
    start_ms = end_ms - step_ms * visits * _VISIT
    made = events(visits * _VISIT, seed, start_ms, step_ms)
    dice = random.Random(seed + 1)  # noqa: S311 - made-up data
    late_visits = max(visits // _TOO_LATE_ONE_IN, 1)
    ledger = Ledger()
    on_time = [event for _ in range(visits - late_visits) for event in _visit(list(islice(made, _VISIT)), dice, ledger)]
    too_late = [event for _ in range(late_visits) for event in _too_late(list(islice(made, _VISIT)), ledger)]
    return Day(on_time, too_late, end_ms - _TOO_LATE_MS + 1, ledger)


def _visit(visit: list[Event], dice: random.Random, ledger: Ledger) -> Iterator[Event]:
    *clicks, checkout, order = visit
    roll = dice.random()
    if roll < _BROKEN_ORDERS:
        order = _broken(order, dice)
        ledger.malformed[order.value] += 1
    elif roll < _BROKEN_ORDERS + _BROKEN_CLICKS:
        clicks[0] = _broken(clicks[0], dice)
        ledger.malformed[clicks[0].value] += 1
    elif roll < _BROKEN_ORDERS + _BROKEN_CLICKS + _LATE:
        by_ms = dice.randint(*_LATE_MS)
        checkout, order = _earlier(checkout, by_ms), _earlier(order, by_ms)
        ledger.late.add(_order_number(order))
    if roll >= _BROKEN_ORDERS:
        _note(order, ledger)
    for event in (*clicks, checkout, order):
        ledger.sent[event.topic] += 1
        yield event


def _too_late(visit: list[Event], ledger: Ledger) -> Iterator[Event]:
    ledger.too_late.add(_order_number(visit[-1]))
    for event in visit:
        ledger.sent[event.topic] += 1
        yield _earlier(event, _TOO_LATE_MS)


def _note(order: Event, ledger: Ledger) -> None:
    assert order.topic == ORDERS
    told = json.loads(order.value)
    euro_cents = told["amount_cents"] * EURO_PERCENT[told["currency"]] // 100
    window_start_ms = order.timestamp_ms // WINDOW_MS * WINDOW_MS
    ledger.bought[told["order"]] = Bought(told["category"], euro_cents, window_start_ms)


def _order_number(order: Event) -> str:
    return str(json.loads(order.value)["order"])


def _earlier(event: Event, by_ms: int) -> Event:
    """It happened earlier than it comes."""
    told = json.loads(event.value)
    happened_ms = event.timestamp_ms - by_ms
    told["at"] = moment(happened_ms)
    return event._replace(value=json.dumps(told, separators=(",", ":")).encode(), timestamp_ms=happened_ms)


def _broken(event: Event, dice: random.Random) -> Event:
    """Cut off, of the wrong type, or no JSON at all."""
    kind = dice.randrange(3)
    if kind == 0:
        return event._replace(value=event.value[: dice.randint(10, len(event.value) - 2)])
    if kind == 1:
        told = json.loads(event.value)
        told["at"] = [told["event"], "o'clock"]
        return event._replace(value=json.dumps(told, separators=(",", ":")).encode())
    return event._replace(value=b"event %d: <error>timeout</error>" % json.loads(event.value)["event"])
