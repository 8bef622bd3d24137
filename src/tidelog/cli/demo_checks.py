"""Reads what the demo's pipeline has written, and holds it against the ledger of what was sent."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client import Consumer, OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidelog.cli.demo_shop import Ledger
    from tidelog.client.fetching import ConsumerRecord

SALES = "demo.sales"
PURCHASES = "demo.purchases"
DEAD_LETTERS = "shop.dead-letters"
_ERROR = "tidelog.error"


class Check(NamedTuple):
    what: str
    expected: int
    found: int
    exact: bool
    """Not only as many: the very ones."""


class Written(NamedTuple):
    """What the pipeline wrote."""

    purchases: list[dict[str, Any]]
    parquet: list[dict[str, Any]]
    sales: dict[tuple[int, str], tuple[int, int]]
    dead_letters: list[bytes]
    reasons: Counter[str]


async def read_written(bootstrap: str, parquet: Path) -> Written:
    letters = await _all_records(bootstrap, DEAD_LETTERS)
    return Written(
        purchases=[json.loads(record.value or b"") for record in await _all_records(bootstrap, PURCHASES)],
        parquet=_parquet_rows(parquet),
        sales=sales_of(await _all_records(bootstrap, SALES)),
        dead_letters=[record.value or b"" for record in letters],
        reasons=Counter(reason_of(record) for record in letters),
    )


def reason_of(letter: ConsumerRecord[bytes, bytes]) -> str:
    """Without the place in the record, so that there are few."""
    reason = (dict(letter.headers).get(_ERROR) or b"").decode(errors="replace")
    return re.sub(r"(?: at)* character \d+", "", reason)


def sales_of(records: Iterable[ConsumerRecord[bytes, bytes]]) -> dict[tuple[int, str], tuple[int, int]]:
    """The latest of each key: orders and euro cents by the start of the window and the category."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for record in records:
        row = json.loads(record.value or b"")
        start_ms = round(datetime.fromisoformat(row["start"]).timestamp() * 1000)
        found[start_ms, row["category"]] = (row["orders"], row["euro_cents"])
    return found


def checks(ledger: Ledger, written: Written) -> list[Check]:
    windows = ledger.windows()
    bought = {order: each.euro_cents for order, each in ledger.bought.items()}
    found = Counter(row["order"] for row in written.purchases)
    late = Counter(order for order in found.elements() if order in ledger.late)
    too_late = sum(count for order, count in found.items() if order in ledger.too_late)
    return [
        _purchases(f"orders in {PURCHASES}, each once", bought, written.purchases),
        Check("of these, came minutes late", len(ledger.late), late.total(), late == Counter(ledger.late)),
        Check(f"of {len(ledger.too_late):,} that came hours late", 0, too_late, too_late == 0),
        _purchases("the same orders in Parquet", bought, written.parquet),
        Check(f"windows of ten minutes in {SALES}", len(windows), len(written.sales), written.sales == windows),
        Check(
            "orders in these windows",
            len(ledger.bought),
            sum(orders for orders, _ in written.sales.values()),
            written.sales == windows,
        ),
        Check(
            f"malformed records in {DEAD_LETTERS}",
            ledger.malformed.total(),
            len(written.dead_letters),
            Counter(written.dead_letters) == ledger.malformed,
        ),
    ]


def _purchases(what: str, bought: dict[str, int], rows: list[dict[str, Any]]) -> Check:
    found = Counter((row["order"], row["euro_cents"]) for row in rows)
    return Check(what, len(bought), found.total(), found == Counter(bought.items()))


def _parquet_rows(directory: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with Spark

    rows: list[dict[str, Any]] = pq.read_table(directory, columns=["order", "euro_cents"]).to_pylist()
    return rows


async def _all_records(bootstrap: str, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
    found: list[ConsumerRecord[bytes, bytes]] = []
    async with Consumer[bytes, bytes](bootstrap, isolation_level="read_committed") as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        ends = await consumer.end_offsets(consumer.assignment)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += await consumer.poll(timeout_s=1.0)
    return found
