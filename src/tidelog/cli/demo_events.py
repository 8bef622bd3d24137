"""What a shop's event stream might look like, made from a seed: orders by customer, clicks by session."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = "demo.orders"
CLICKS = "demo.clicks"

_CATALOGUE = {
    "books": (("The Long Tide", 1490), ("Logs and Leaders", 3900), ("Offsets for Beginners", 2450)),
    "garden": (("Watering can", 1995), ("Herb seeds", 350), ("Pruning shears", 2790)),
    "kitchen": (("Espresso pot", 3499), ("Chef's knife", 8900), ("Salt cellar", 1250)),
    "music": (("Ukulele", 6990), ("Metronome", 2400), ("Guitar strings", 999)),
    "sports": (("Climbing rope", 11900), ("Yoga mat", 2995), ("Head torch", 4450)),
}
_PRODUCTS = [
    {"sku": f"{category[:3].upper()}-{at}", "name": name, "category": category, "price_cents": cents}
    for category, products in _CATALOGUE.items()
    for at, (name, cents) in enumerate(products, start=1)
]
CATEGORIES = tuple(_CATALOGUE)
EURO_PERCENT = {"EUR": 100, "USD": 92, "GBP": 117, "CHF": 104}
"""What a hundredth of each currency is worth in hundredths of a euro cent: sums stay whole numbers."""

_COUNTRIES = (("DE", "EUR"), ("FR", "EUR"), ("ES", "EUR"), ("US", "USD"), ("GB", "GBP"), ("CH", "CHF"))
_PAGES = ("home", "search", "category", "product", "product", "product", "cart")
_CHECKOUT = "checkout"
_DEVICES = ("phone", "phone", "laptop", "tablet")
_CUSTOMERS = 5000
_SESSIONS_OPEN = 400
_CLICKS_PER_ORDER = 3


class Event(NamedTuple):
    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


def events(count: int, seed: int, start_ms: int, step_ms: int = 1) -> Iterator[Event]:
    """`count` events, the same for the same seed: three clicks to an order, sessions that come and go.

    The click before an order is the one with which its session went to the checkout.
    """
    dice = random.Random(seed)  # noqa: S311 - made-up data
    encode = json.JSONEncoder(separators=(",", ":")).encode
    sessions = [_session(dice, number) for number in range(_SESSIONS_OPEN)]
    opened = _SESSIONS_OPEN
    at = 0
    for number in range(count):
        timestamp_ms = start_ms + number * step_ms
        step = number % (_CLICKS_PER_ORDER + 1)
        if step < _CLICKS_PER_ORDER:
            at = dice.randrange(_SESSIONS_OPEN)
        session = sessions[at]
        if step == _CLICKS_PER_ORDER:
            order = _order(dice, number, session, timestamp_ms)
            yield Event(ORDERS, session["customer"].encode(), encode(order).encode(), timestamp_ms)
            sessions[at] = _session(dice, opened)
            opened += 1
        else:
            page = _CHECKOUT if step == _CLICKS_PER_ORDER - 1 else dice.choice(_PAGES)
            click = _click(dice, number, session, timestamp_ms, page)
            yield Event(CLICKS, session["session"].encode(), encode(click).encode(), timestamp_ms)


def moment(timestamp_ms: int) -> str:
    """As it stands in events."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _session(dice: random.Random, number: int) -> dict[str, str]:
    country, currency = dice.choice(_COUNTRIES)
    return {
        "session": f"s{number:07d}",
        "customer": f"customer-{int(_CUSTOMERS * dice.random() ** 2):04d}",
        "country": country,
        "currency": currency,
        "device": dice.choice(_DEVICES),
    }


def _order(dice: random.Random, number: int, session: dict[str, str], timestamp_ms: int) -> dict[str, object]:
    product = dice.choice(_PRODUCTS)
    quantity = 1 + int(3 * dice.random() ** 3)
    return {
        "event": number,
        "order": f"o{number:08d}",
        "customer": session["customer"],
        "session": session["session"],
        "country": session["country"],
        "sku": product["sku"],
        "product": product["name"],
        "category": product["category"],
        "quantity": quantity,
        "amount_cents": quantity * int(str(product["price_cents"])),
        "currency": session["currency"],
        "at": moment(timestamp_ms),
    }


def _click(
    dice: random.Random, number: int, session: dict[str, str], timestamp_ms: int, page: str
) -> dict[str, object]:
    return {
        "event": number,
        "session": session["session"],
        "customer": session["customer"],
        "page": page,
        "sku": dice.choice(_PRODUCTS)["sku"] if page in {"product", "cart"} else None,
        "device": session["device"],
        "country": session["country"],
        "at": moment(timestamp_ms),
    }
