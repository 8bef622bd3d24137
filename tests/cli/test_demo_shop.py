from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tidelog.cli.demo_checks import Written, checks, reason_of, sales_of
from tidelog.cli.demo_events import CLICKS, ORDERS, Event
from tidelog.cli.demo_shop import WINDOW_MS, Day, day
from tidelog.client.fetching import ConsumerRecord

END_MS = 1_772_323_200_000


def whole_day() -> Day:
    return day(8000, 7, END_MS)


def loaded(event: Event) -> dict[str, Any] | None:
    """None: it is malformed."""
    try:
        told: dict[str, Any] = json.loads(event.value)
    except ValueError:
        return None
    return told if isinstance(told["at"], str) else None


def test_a_day_is_the_same_for_the_same_seed() -> None:
    assert whole_day() == whole_day()
    assert whole_day() != day(8000, 8, END_MS)


def test_the_ledger_knows_what_was_sent() -> None:
    shop = whole_day()
    events = [*shop.on_time, *shop.too_late]
    assert Counter(event.topic for event in events) == shop.ledger.sent == {ORDERS: 2000, CLICKS: 6000}
    broken = Counter(event.value for event in events if loaded(event) is None)
    assert broken == shop.ledger.malformed
    orders = {order["order"] for event in events if event.topic == ORDERS and (order := loaded(event))}
    assert orders == shop.ledger.bought.keys() | shop.ledger.too_late
    assert not shop.ledger.bought.keys() & shop.ledger.too_late
    assert shop.ledger.late < shop.ledger.bought.keys()


def test_a_day_has_some_of_everything() -> None:
    shop = whole_day()
    assert {event.topic for event in shop.on_time if loaded(event) is None} == {ORDERS, CLICKS}
    assert min(len(shop.ledger.late), len(shop.ledger.too_late)) > 5
    assert len({start for start, _ in shop.ledger.windows()}) in {12, 13, 14}


def test_no_order_is_later_than_is_waited_for_unless_it_is_far_too_late() -> None:
    shop = whole_day()
    latest_ms = 0
    for event in shop.on_time:
        assert latest_ms - event.timestamp_ms < 10 * 60_000
        latest_ms = max(latest_ms, event.timestamp_ms)
    assert all(event.timestamp_ms < shop.too_late_before_ms for event in shop.too_late)
    assert shop.too_late_before_ms < latest_ms - 15 * 60_000


@pytest.mark.parametrize("count", [1, 4, 9, 100])
def test_a_short_day_has_whole_visits(count: int) -> None:
    shop = day(count, 7, END_MS)
    assert shop.ledger.sent[CLICKS] == 3 * shop.ledger.sent[ORDERS] > 0
    assert shop.too_late


def as_written(shop: Day) -> Written:
    rows = [{"order": order, "euro_cents": each.euro_cents} for order, each in shop.ledger.bought.items()]
    letters = list(shop.ledger.malformed.elements())
    return Written(rows, list(rows), shop.ledger.windows(), letters, Counter())


def failed(shop: Day, written: Written) -> list[bool]:
    return [not check.exact for check in checks(shop.ledger, written)]


def test_what_is_as_it_should_be_is_found_to_be() -> None:
    shop = whole_day()
    assert not any(failed(shop, as_written(shop)))


def test_an_order_that_is_missing_repeated_or_changed_is_noticed() -> None:
    shop = whole_day()
    good = as_written(shop)
    changed = [{**good.purchases[0], "euro_cents": 1}, *good.purchases[1:]]
    for purchases in (good.purchases[1:], [*good.purchases, good.purchases[0]], changed):
        assert failed(shop, good._replace(purchases=purchases))[0]
        assert failed(shop, good._replace(parquet=purchases))[3]


def test_an_order_that_should_have_been_left_out_is_noticed() -> None:
    shop = whole_day()
    good = as_written(shop)
    left_out = {"order": next(iter(shop.ledger.too_late)), "euro_cents": 1}
    assert failed(shop, good._replace(purchases=[*good.purchases, left_out]))[:3] == [True, False, True]
    late = [row for row in good.purchases if row["order"] not in shop.ledger.late]
    assert failed(shop, good._replace(purchases=late))[:3] == [True, True, False]


def test_wrong_windows_and_dead_letters_are_noticed() -> None:
    shop = whole_day()
    good = as_written(shop)
    (key, (orders, cents)), *_ = good.sales.items()
    assert failed(shop, good._replace(sales={**good.sales, key: (orders, cents + 1)}))[4:6] == [True, True]
    assert failed(shop, good._replace(dead_letters=good.dead_letters[1:]))[6]
    assert failed(shop, good._replace(dead_letters=[b"", *good.dead_letters[1:]]))[6]


def record(value: bytes, headers: tuple[tuple[str, bytes | None], ...] = ()) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("topic", 0, 0, 0, None, value, headers)


def test_the_latest_sales_of_a_window_count() -> None:
    rows = [
        {"start": "1970-01-01T00:10:00.000Z", "category": "books", "orders": 1, "euro_cents": 10},
        {"start": "1970-01-01T02:10:00.000+02:00", "category": "books", "orders": 2, "euro_cents": 30},
        {"start": "1970-01-01T00:20:00.000Z", "category": "books", "orders": 3, "euro_cents": 40},
    ]
    found = sales_of(record(json.dumps(row).encode()) for row in rows)
    assert found == {(WINDOW_MS, "books"): (2, 30), (2 * WINDOW_MS, "books"): (3, 40)}


def test_reasons_are_told_without_places() -> None:
    told = (("tidelog.error", b"value: it is not JSON: Expecting value at character 17"),)
    assert reason_of(record(b"", told)) == "value: it is not JSON: Expecting value"
    assert reason_of(record(b"")) == ""
