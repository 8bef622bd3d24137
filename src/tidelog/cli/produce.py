"""`tidelog produce`: sends lines of text to a topic."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog.cli.options import bootstrap_option, json_option, key_values
from tidelog.cli.output import human_bytes, show_json

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tidelog.client.config import ProducerConfig
    from tidelog.client.producer import Producer
    from tidelog.client.sender import RecordMetadata


class Wanted(NamedTuple):
    topic: str
    key_separator: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


class Tally:
    """How the records fare."""

    def __init__(self) -> None:
        self.sent = 0
        self.sent_bytes = 0
        self.delivered = 0
        self.failed = 0
        self.first_error: BaseException | None = None

    def settle(self, delivery: asyncio.Future[RecordMetadata]) -> None:
        error = None if delivery.cancelled() else delivery.exception()
        if error is None and not delivery.cancelled():
            self.delivered += 1
        else:
            self.failed += 1
            self.first_error = self.first_error or error


@click.command()
@click.argument("topic")
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="Read this instead of standard input.")
@click.option("--key-separator", metavar="TEXT", help="What stands before the first TEXT in a line is its key.")
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="For every record; may be repeated.")
@click.option("--partition", type=click.IntRange(min=0), help="Send everything to this one.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Who must have a record before it counts as delivered: all replicas in sync, the leader, nobody.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), help="Bytes of records that are sent without waiting for more."
)
@click.option("--linger-ms", type=click.IntRange(min=0), help="How long a record waits for company.")
@bootstrap_option
@json_option
@click.pass_context
def produce(
    ctx: click.Context,
    topic: str,
    file: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    batch_size: int | None,
    linger_ms: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send each line of the input to TOPIC as one record, until the input ends.

    Exit code 1 when any record was not delivered.
    """
    from tidelog.cli.lines import LINE_BYTES_MAX  # noqa: PLC0415 - --help must not pay for any of it
    from tidelog.client import ProducerConfig  # noqa: PLC0415

    if key_separator == "":
        raise click.UsageError("--key-separator needs at least one character", ctx)
    chosen: dict[str, Any] = {"batch_size": batch_size, "linger_ms": linger_ms}
    config = ProducerConfig(
        acks="all" if acks == "all" else (1 if acks == "1" else 0),
        compression_type=compression,
        max_request_size=LINE_BYTES_MAX + (1 << 10),
        **{name: value for name, value in chosen.items() if value is not None},
    )
    wanted = Wanted(
        topic,
        key_separator.encode() if key_separator is not None else None,
        tuple((key, value.encode()) for key, value in key_values(headers, "--header").items()),
        partition,
    )
    logging.getLogger("tidelog.client.sender").setLevel(logging.ERROR)  # what fails is summed up below
    with Path(file).open("rb") if file is not None else nullcontext(sys.stdin) as source:
        tally, seconds = asyncio.run(_produce(bootstrap, wanted, config, source.fileno()))
    if as_json:
        show_json({"topic": topic, "delivered": tally.delivered, "failed": tally.failed, "seconds": round(seconds, 3)})
    elif sys.stderr.isatty():
        click.echo(f"{tally.delivered:,} records ({human_bytes(tally.sent_bytes)}) in {seconds:.1f} s", err=True)
    if tally.failed:
        raise click.ClickException(
            f"{tally.failed:,} of {tally.sent:,} records were not delivered: {tally.first_error or 'interrupted'}"
        )


async def _produce(bootstrap: str, wanted: Wanted, config: ProducerConfig, fd: int) -> tuple[Tally, float]:
    from tidelog.cli.lines import read_lines  # noqa: PLC0415
    from tidelog.cli.names import choose_partitions, find_topic  # noqa: PLC0415
    from tidelog.client import Admin, Producer  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    async with Admin(bootstrap) as admin:
        found = await find_topic(admin, wanted.topic)
        choose_partitions(found, () if wanted.partition is None else (wanted.partition,))
    tally = Tally()
    started_s = loop.time()
    async with Producer(bootstrap, config) as producer:
        with _progress(tally):
            async for lines in read_lines(fd):
                await _send(producer, wanted, lines, tally)
            await producer.flush()
    await asyncio.sleep(0)  # let the last deliveries be counted
    return tally, loop.time() - started_s


async def _send(producer: Producer, wanted: Wanted, lines: list[bytes], tally: Tally) -> None:
    for line in lines:
        key: bytes | None = None
        value = line
        if wanted.key_separator is not None:
            before, found, after = line.partition(wanted.key_separator)
            if not found:
                text = line[:60].decode("utf-8", "replace")
                raise click.ClickException(f"line {tally.sent + 1} has no key separator: {text!r}")
            key, value = before, after
        delivery = await producer.send(wanted.topic, value, key=key, headers=wanted.headers, partition=wanted.partition)
        delivery.add_done_callback(tally.settle)
        tally.sent += 1
        tally.sent_bytes += len(line)


def _progress(tally: Tally) -> AbstractContextManager[object]:
    """A line that counts, when someone is watching and is not the one who types the records."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        return nullcontext()
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def line() -> Text:
        return Text(f"{tally.delivered:,} of {tally.sent:,} records delivered ({human_bytes(tally.sent_bytes)})")

    return Live(
        get_renderable=line, console=Console(stderr=True), refresh_per_second=8, transient=True, redirect_stdout=False
    )
