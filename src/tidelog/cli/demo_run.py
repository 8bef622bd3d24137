"""The demo with Spark: sends a day of the shop while the pipeline runs, waits until it has seen all, and checks."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from tidelog.cli.demo_broker import DemoBroker
from tidelog.cli.demo_checks import PURCHASES, SALES, Check, Written, checks, read_written
from tidelog.cli.demo_events import CATEGORIES, CLICKS, ORDERS, Event
from tidelog.cli.demo_pipeline_process import NAME, DemoPipeline
from tidelog.cli.demo_shop import Day, day
from tidelog.cli.output import program_name, show_json, show_table
from tidelog.cli.pipeline_display import PipelineDisplay, choose_display
from tidelog.client import Admin, Producer, ProducerConfig
from tidelog.clock import SystemClock
from tidelog.errors import BrokerError
from tidelog.pipelines.session.errors import SessionError
from tidelog.pipelines.session.java import find_java

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidelog.pipelines.runner.progress import Figures

_PARTITIONS: Final = 3
_QUERIES: Final = {
    "sales": (ORDERS,),
    "purchases": (ORDERS, CLICKS),
    "archive": (ORDERS, CLICKS),
    "dead-letters.orders": (ORDERS,),
    "dead-letters.clicks": (CLICKS,),
}
"""What each reads."""
_TIMED: Final = {"sales", "purchases", "archive"}
"""Those that wait for what is late, for a while."""
_AT_ONCE: Final = 0.4
"""So much of the day has happened when the pipeline starts; the rest happens while it runs."""
_EVENTS_PER_S: Final = 4000
_EVENTS_PER_TURN: Final = 200
_LOOK_EVERY_S: Final = 0.25
_DONE_WITHIN_S: Final = 600.0
"""For hanging, not for slowness."""


def run_shop(records: int, seed: int, *, keep: bool, as_json: bool) -> None:
    _check_spark()
    clock = SystemClock()
    say: Callable[[str], None] = (lambda _text: None) if as_json else click.echo
    started_s = clock.monotonic()
    with DemoBroker(keep=keep) as broker:
        say(f"a broker is up on {broker.bootstrap} after {broker.ready_after_s:.2f} s")
        with DemoPipeline(broker.bootstrap, broker.directory, keep=keep) as pipeline:
            shop = day(records, seed, clock.now_ms())
            say(f"a pipeline starts, and {len(shop.on_time) + len(shop.too_late):,} orders and clicks are sent")
            asyncio.run(
                _stream(broker.bootstrap, pipeline, shop, None if as_json else choose_display(NAME, as_json=False))
            )
            written = asyncio.run(read_written(broker.bootstrap, pipeline.parquet))
            found = checks(shop.ledger, written)
            seconds = clock.monotonic() - started_s
    if as_json:
        show_json(_result(shop, written, found, seconds))
    else:
        _show(shop, written, found, seconds)
    wrong = [check.what for check in found if not check.exact]
    if wrong:
        raise click.ClickException(f"not as they should be: {'; '.join(wrong)}")
    if keep:
        say(_how_to_use(broker, pipeline))


def _check_spark() -> None:
    instead = "or try `tidelog demo --without-spark`"
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise click.ClickException(f"the demo needs Spark: pip install 'tidelog[spark,java]', {instead}")
    try:
        find_java(os.environ)
    except SessionError as error:
        raise click.ClickException(f"{error}; {instead}") from None


async def _stream(bootstrap: str, pipeline: DemoPipeline, shop: Day, display: PipelineDisplay | None) -> None:
    """Until the pipeline has seen the whole day, or has failed."""
    async with Admin(bootstrap) as admin:
        for topic in (ORDERS, CLICKS):
            await admin.create_topic(topic, partitions=_PARTITIONS)
        sending = asyncio.create_task(_send_all(bootstrap, admin, pipeline, shop))
        try:
            if display is None:
                await _follow(pipeline, sending, None)
            else:
                with display:
                    await _follow(pipeline, sending, display)
            await sending
        finally:
            sending.cancel()


async def _follow(pipeline: DemoPipeline, sending: asyncio.Task[None], display: PipelineDisplay | None) -> None:
    if display is not None:
        display.stage("starting Spark")
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _DONE_WITHIN_S
    while not sending.done():
        figures = pipeline.figures()
        if display is not None and figures:
            display.look(figures)
        if loop.time() > deadline_s:
            raise click.ClickException(f"the pipeline has not seen everything after {_DONE_WITHIN_S:.0f} s")
        await asyncio.wait([sending], timeout=_LOOK_EVERY_S)


async def _send_all(bootstrap: str, admin: Admin, pipeline: DemoPipeline, shop: Day) -> None:
    async def begun() -> bool:
        return bool(pipeline.figures())

    async def nobody_waits() -> bool:
        return _nobody_waits(pipeline.figures(), shop.too_late_before_ms)

    async def all_seen() -> bool:
        return await _all_seen(admin, shop)

    async with Producer(bootstrap, ProducerConfig(compression_type="lz4", linger_ms=20)) as producer:
        at_once = int(len(shop.on_time) * _AT_ONCE)
        await _send(producer, shop.on_time[:at_once], None)
        await _until(begun)
        await _send(producer, shop.on_time[at_once:], _EVENTS_PER_S)
        await _until(nobody_waits)
        await _send(producer, shop.too_late, None)
    await _until(all_seen)


async def _send(producer: Producer, events: Sequence[Event], events_per_s: int | None) -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for number, event in enumerate(events):
        await producer.send(event.topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms)
        if number % _EVENTS_PER_TURN == 0:
            due_s = started_s + number / events_per_s if events_per_s else 0
            await asyncio.sleep(max(due_s - loop.time(), 0))
    await producer.flush()


async def _until(probe: Callable[[], Awaitable[bool]]) -> None:
    while not await probe():  # noqa: ASYNC110 - it becomes true in another process
        await asyncio.sleep(_LOOK_EVERY_S)


def _nobody_waits(figures: list[Figures], moment_ms: int) -> bool:
    """Whether all queries that mind the time have a watermark after it."""
    marks = {each.query: each.watermark for each in figures if each.query in _TIMED and each.watermark is not None}
    return marks.keys() == _TIMED and all(
        datetime.fromisoformat(mark).timestamp() * 1000 > moment_ms for mark in marks.values()
    )


async def _all_seen(admin: Admin, shop: Day) -> bool:
    """Each query has done, and committed, all that was sent to the topics it reads."""
    for query, topics in _QUERIES.items():
        try:
            committed = await admin.list_group_offsets(f"{NAME}.{query}")
        except BrokerError as error:
            if not error.code.retriable:
                raise
            return False
        seen: Counter[str] = Counter()
        for partition, position in committed.items():
            seen[partition.topic] += position.offset
        if any(seen[topic] < shop.ledger.sent[topic] for topic in topics):
            return False
    return True


def _show(shop: Day, written: Written, found: list[Check], seconds: float) -> None:
    records = shop.ledger.sent.total()
    click.echo(f"{seconds:.1f} s after the start all queries have seen {records:,} records, and results are checked")
    rows: list[list[str | int | None]] = [
        [check.what, f"{check.expected:,}", f"{check.found:,}", "yes" if check.exact else "NO"] for check in found
    ]
    show_table(["what", "expected", "found", "exactly these"], rows)
    show_table(["category", "orders", "revenue in EUR"], _revenue(written))
    for reason, count in written.reasons.most_common(3):
        click.echo(f"dead letters: {count} x {reason}")


def _revenue(written: Written) -> list[list[str]]:
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for (_, category), (count, euro_cents) in written.sales.items():
        orders[category] += count
        cents[category] += euro_cents
    rows = [[category, f"{orders[category]:,}", f"{cents[category] / 100:,.2f}"] for category in CATEGORIES]
    return [*rows, ["all", f"{orders.total():,}", f"{cents.total() / 100:,.2f}"]]


def _result(shop: Day, written: Written, found: list[Check], seconds: float) -> dict[str, object]:
    revenue: Counter[str] = Counter()
    for (_, category), (_, euro_cents) in written.sales.items():
        revenue[category] += euro_cents
    return {
        "records": shop.ledger.sent.total(),
        "seconds": round(seconds, 3),
        "complete": all(check.exact for check in found),
        "checks": [check._asdict() for check in found],
        "late": len(shop.ledger.late),
        "too_late": len(shop.ledger.too_late),
        "revenue_euro_cents": dict(sorted(revenue.items())),
    }


def _how_to_use(broker: DemoBroker, pipeline: DemoPipeline) -> str:
    program, processes = program_name(), f"processes {broker.pid} and {pipeline.pid}"
    return (
        f"broker and pipeline go on running ({processes}, files in {broker.directory}); try\n"
        f"  export TIDELOG_BOOTSTRAP={broker.bootstrap} TIDELOG_PIPELINES_DIR={pipeline.state}\n"
        f"  {program} pipeline status\n"
        f"  {program} consume {PURCHASES} --from -5 --exit-at-end --json\n"
        f"  {program} consume {SALES} --from -5 --exit-at-end --json\n"
        f"  less {pipeline.file}\n"
        f"  kill {pipeline.pid} {broker.pid}    # stops them; delete {broker.directory} afterwards"
    )
