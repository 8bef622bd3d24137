"""`tidelog consume`: prints the records of a topic."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from tidelog.cli.options import bootstrap_option
from tidelog.cli.record_json import record_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cli.starts import Start
    from tidelog.client.admin import Admin
    from tidelog.client.consumer import Consumer
    from tidelog.client.fetching import ConsumerRecord
    from tidelog.client.offsets import OffsetSpec
    from tidelog.types import Offset, TopicPartition

_END_CHECK_S = 0.25


class Wanted(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    start: Start
    max_records: int | None
    exit_at_end: bool


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start_text",
    default="latest",
    show_default=True,
    metavar="START",
    help="earliest, latest, an offset (42), the last few of each partition (-10), or a time "
    "(@1700000000000, 2026-03-01T12:00:00Z, 2h ago as 2h).",
)
@click.option("--max", "max_records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--exit-at-end", is_flag=True, help="Stop at what is the end now, instead of waiting for more.")
@click.option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this one; may be repeated."
)
@click.option("--keys", is_flag=True, help="Print the key before the value.")
@click.option("--key-separator", default="\t", metavar="TEXT", help="What stands between key and value; a tab.")
@click.option("--json", "as_json", is_flag=True, help="Print everything about each record as a line of JSON.")
@bootstrap_option
def consume(
    topic: str,
    start_text: str,
    max_records: int | None,
    exit_at_end: bool,
    partitions: tuple[int, ...],
    keys: bool,
    key_separator: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print the records of TOPIC, one line each, and wait for more until Ctrl-C.

    In JSON, keys, values and headers that are not UTF-8 text are written as {"base64": "..."}.
    """
    from tidelog.cli.starts import parse_start  # noqa: PLC0415 - --help must not pay for it

    try:
        start = parse_start(start_text)
    except ValueError as error:
        raise click.UsageError(f"--from: {error}", click.get_current_context()) from None
    separator = key_separator.encode()
    render: Callable[[ConsumerRecord], bytes]
    if as_json:
        render = json_line
    elif keys:
        render = lambda record: (record.key or b"") + separator + (record.value or b"") + b"\n"  # noqa: E731
    else:
        render = lambda record: (record.value or b"") + b"\n"  # noqa: E731
    wanted = Wanted(topic, partitions, start, max_records, exit_at_end)
    asyncio.run(_consume(bootstrap, wanted, render, sys.stdout.buffer))


async def _consume(bootstrap: str, wanted: Wanted, render: Callable[[ConsumerRecord], bytes], out: BinaryIO) -> None:
    from tidelog.cli.names import choose_partitions, find_topic  # noqa: PLC0415
    from tidelog.client import Admin, Consumer, ConsumerConfig, OffsetSpec  # noqa: PLC0415

    async with Admin(bootstrap) as admin:
        chosen = choose_partitions(await find_topic(admin, wanted.topic), wanted.partitions)
        starts = await _starts(admin, wanted.start, chosen)
        ends: dict[TopicPartition, Offset] = {}
        if wanted.exit_at_end:
            found = await admin.list_offsets(dict.fromkeys(chosen, OffsetSpec.latest()))
            ends = {partition: end.offset for partition, end in found.items() if end is not None}
    async with Consumer(bootstrap, ConsumerConfig(auto_offset_reset="earliest")) as consumer:
        await consumer.assign(starts)
        await _print(consumer, wanted, ends, render, out)


async def _print(
    consumer: Consumer,
    wanted: Wanted,
    ends: dict[TopicPartition, Offset],
    render: Callable[[ConsumerRecord], bytes],
    out: BinaryIO,
) -> None:
    left = wanted.max_records
    while left != 0 and not (ends and all(consumer.position(each) >= end for each, end in ends.items())):
        records = await consumer.poll(_END_CHECK_S if ends else None, left if left is not None and left < 500 else None)
        # At the end means the end as it was: what came later in the same answer is not printed.
        lines = [render(record) for record in records if not ends or record.offset < _end_of(record, ends)]
        out.write(b"".join(lines))
        out.flush()
        if left is not None:
            left -= len(lines)


def _end_of(record: ConsumerRecord, ends: dict[TopicPartition, Offset]) -> int:
    return ends[record.topic, record.partition]  # type: ignore[index]  # equal to, and hashed as, a TopicPartition


async def _starts(
    admin: Admin, start: Start, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetSpec | int]:
    from tidelog.client import OffsetSpec  # noqa: PLC0415

    if start.timestamp_ms is not None:
        return dict.fromkeys(partitions, OffsetSpec.at_timestamp(start.timestamp_ms))
    if start.word is not None:
        return dict.fromkeys(partitions, OffsetSpec.earliest() if start.word == "earliest" else OffsetSpec.latest())
    firsts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    starts: dict[TopicPartition, OffsetSpec | int] = {}
    for partition in partitions:
        first, end = firsts[partition], ends[partition]
        assert first is not None, "every partition has a start"
        assert end is not None, "every partition has an end"
        wanted = end.offset - start.last if start.last is not None else (start.offset or 0)
        # One offset is meant for all partitions, and not all of them reach as far.
        starts[partition] = min(max(first.offset, wanted), end.offset)
    return starts


def json_line(record: ConsumerRecord) -> bytes:
    document = {"topic": record.topic, "partition": record.partition, **record_fields(record)}
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"
