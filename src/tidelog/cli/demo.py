"""`tidelog demo`: starts a broker, streams a shop's events through it, and checks that every one came back in order."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tidelog.cli.output import human_bytes, show_json, show_table

if TYPE_CHECKING:
    from tidelog.cli.demo_report import Report
    from tidelog.client.consumer import Consumer
    from tidelog.client.producer import Producer, RecordMetadata

_PARTITIONS = 3
_SEED = 20260301
_SENDING_S_MAX = 10.0
_CATCHING_UP_S_MAX = 20.0
_EVENTS_PER_TURN = 200


@click.command()
@click.option("--records", type=click.IntRange(min=1), default=200_000, show_default=True, help="How many events.")
@click.option("--seed", type=int, default=_SEED, show_default=True, help="The same seed makes the same events.")
@click.option("--keep", is_flag=True, help="Leave the broker running, and say how to use it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(records: int, seed: int, keep: bool, as_json: bool) -> None:
    """Start a broker in a temporary directory and watch a shop's events stream through it.

    Orders and clicks are produced and consumed at the same time; every record must come back, in order.
    It ends by itself: after ten seconds nothing more is sent, however many records were asked for.
    """
    from tidelog.cli.demo_broker import DemoBroker  # noqa: PLC0415 - --help must not pay for it

    say = (lambda _text: None) if as_json else click.echo
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
    from tidelog.cli.demo_display import choose_display  # noqa: PLC0415
    from tidelog.cli.demo_events import CLICKS, ORDERS  # noqa: PLC0415
    from tidelog.cli.demo_report import Report  # noqa: PLC0415
    from tidelog.client import Admin, Consumer, OffsetSpec, Producer, ProducerConfig  # noqa: PLC0415

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
    from tidelog.cli.demo_events import events  # noqa: PLC0415
    from tidelog.client.partitioner import partition_for_key  # noqa: PLC0415
    from tidelog.clock import SystemClock  # noqa: PLC0415
    from tidelog.types import TopicPartition  # noqa: PLC0415

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
    from tidelog.types import TopicPartition  # noqa: PLC0415

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
    program = "tidelog" if not sys.argv[0].endswith("__main__.py") else "python -m tidelog"
    return (
        f"the broker goes on running (process {pid}, files in {directory}); try\n"
        f"  export TIDELOG_BOOTSTRAP={bootstrap}\n"
        f"  {program} topic list\n"
        f"  {program} consume demo.orders --from -5 --exit-at-end --json\n"
        f"  kill {pid}    # stops it; delete {directory} afterwards"
    )
