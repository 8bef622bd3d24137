"""The demo without Spark: streams a shop's events through a broker, and checks that every one came back in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tidelog.cli.demo_broker import DemoBroker
from tidelog.cli.demo_display import choose_display
from tidelog.cli.demo_events import CLICKS, ORDERS, events
from tidelog.cli.demo_report import Report
from tidelog.cli.output import human_bytes, program_name, show_json, show_table
from tidelog.client import Admin, Consumer, OffsetSpec, Producer, ProducerConfig
from tidelog.client.partitioner import partition_for_key
from tidelog.clock import SystemClock
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.producer import RecordMetadata

_PARTITIONS = 3
_SENDING_S_MAX = 10.0
_CATCHING_UP_S_MAX = 20.0
_EVENTS_PER_TURN = 200


def stream(records: int, seed: int, *, keep: bool, as_json: bool) -> None:
    """Starts the broker, streams, and tells what came of it."""
    say: Callable[[str], None] = (lambda _text: None) if as_json else click.echo
    with DemoBroker(keep=keep) as broker:
        say(f"a broker is up on {broker.bootstrap} after {broker.ready_after_s:.2f} s")
        report, seconds = asyncio.run(_stream(broker.bootstrap, records, seed, quiet=as_json))
    if as_json:
        show_json(_result(report, seconds))
    else:
        _show(report, seconds)
    if not report.complete:
        raise click.ClickException(f"{report.sent - report.received:,} records did not come back")
    if keep:
        say(_how_to_use(broker.bootstrap, broker.pid, str(broker.directory)))


async def _stream(bootstrap: str, count: int, seed: int, *, quiet: bool) -> tuple[Report, float]:
    """Sends and reads at the same time; gives what was learnt and how long it took."""
    loop = asyncio.get_running_loop()
    report = Report()
    async with Admin(bootstrap) as admin:
        for topic in (ORDERS, CLICKS):
            await admin.create_topic(topic, partitions=_PARTITIONS)
    config = ProducerConfig(compression_type="lz4", linger_ms=20)
    async with Producer(bootstrap, config) as producer, Consumer(bootstrap) as consumer:
        await consumer.assign_topics([ORDERS, CLICKS], OffsetSpec.earliest())
        watching = None if quiet else loop.create_task(choose_display().follow(report, count))
        started_s = loop.time()
        reading = loop.create_task(_read(consumer, report))
        try:
            await _send(producer, report, count, seed)
            async with asyncio.timeout(_CATCHING_UP_S_MAX):
                while not report.complete and not reading.done():
                    await asyncio.wait([reading], timeout=0.01)
        except TimeoutError:
            pass  # the caller sees that something is missing
        finally:
            seconds = loop.time() - started_s
            for task in (reading, watching):
                if task is not None and not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
    if reading.done() and not reading.cancelled():
        reading.result()
    return report, seconds


async def _send(producer: Producer, report: Report, count: int, seed: int) -> None:

    def settled(delivery: asyncio.Future[RecordMetadata]) -> None:
        report.delivered += not delivery.cancelled() and delivery.exception() is None

    loop = asyncio.get_running_loop()
    stop_s = loop.time() + _SENDING_S_MAX
    for number, event in enumerate(events(count, seed, SystemClock().now_ms() - count)):
        partition = partition_for_key(event.key, _PARTITIONS)
        report.note_sent(TopicPartition(event.topic, partition), event.value)
        delivery = await producer.send(
            event.topic, event.value, key=event.key, partition=partition, timestamp_ms=event.timestamp_ms
        )
        delivery.add_done_callback(settled)
        if number % _EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)  # the reader runs on the same loop
            if loop.time() > stop_s:
                break
    await producer.flush()


async def _read(consumer: Consumer, report: Report) -> None:

    while True:
        for record in await consumer.poll(max_records=_EVENTS_PER_TURN):
            report.note_received(TopicPartition(record.topic, record.partition), record)
        await asyncio.sleep(0)


def _show(report: Report, seconds: float) -> None:
    rate = report.received / seconds
    click.echo(
        f"{report.received:,} records ({human_bytes(report.sent_bytes)}) produced and consumed in {seconds:.1f} s: "
        f"{rate:,.0f} records/s, {human_bytes(report.sent_bytes / seconds)}/s each way"
    )
    if report.complete:
        click.echo("every record came back, and in order in every partition")
    show_table(["category", "orders", "revenue in EUR"], report.revenue_rows())


def _result(report: Report, seconds: float) -> dict[str, object]:
    return {
        "records": report.received,
        "bytes": report.sent_bytes,
        "seconds": round(seconds, 3),
        "records_per_second": round(report.received / seconds),
        "complete": report.complete,
        "revenue_euro_cents": dict(sorted(report.euro_cents.items())),
    }


def _how_to_use(bootstrap: str, pid: int, directory: str) -> str:
    program = program_name()
    return (
        f"the broker goes on running (process {pid}, files in {directory}); try\n"
        f"  export TIDELOG_BOOTSTRAP={bootstrap}\n"
        f"  {program} topic list\n"
        f"  {program} consume demo.orders --from -5 --exit-at-end --json\n"
        f"  kill {pid}    # stops it; delete {directory} afterwards"
    )
