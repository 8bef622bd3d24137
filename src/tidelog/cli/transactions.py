"""`tidelog transactions`: which there are, what each is in, which hang, and how to get rid of one that does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import show_json, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.admin import Admin
    from tidelog.client.administration.transactions import (
        HangingTransaction,
        ListedTransaction,
        PartitionProducer,
        TransactionDescription,
    )
    from tidelog.types import TopicPartition

MINUTE_MS = 60_000


@click.group()
def transactions() -> None:
    """Show transactions and those who write them; find and abort those that hang."""


@transactions.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only in this state, such as Ongoing.")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Only of this producer id.")
@click.option("--longer-than", "longer_than_ms", type=int, default=-1, metavar="MS", help="Only those open for longer.")
@click.option("--matching", "pattern", metavar="REGEX", help="Only transactional ids that match as a whole.")
@bootstrap_option
@json_option
def list_(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int,
    pattern: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List transactional ids with their coordinator, producer id and state."""

    async def work() -> list[ListedTransaction]:
        async with _admin(bootstrap) as admin:
            return await admin.list_transactions(
                states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, pattern=pattern
            )

    found = asyncio.run(work())
    if as_json:
        show_json([each._asdict() for each in found])
        return
    show_table(
        ["transactional id", "state", "producer id", "coordinator"],
        [[each.transactional_id, each.state, each.producer_id, each.coordinator] for each in found],
    )


@transactions.command()
@click.argument("transactional_id")
@bootstrap_option
@json_option
def describe(transactional_id: str, bootstrap: str, as_json: bool) -> None:
    """Show what the coordinator knows of TRANSACTIONAL_ID."""

    async def work() -> TransactionDescription:
        async with _admin(bootstrap) as admin:
            return await admin.describe_transaction(transactional_id)

    found = asyncio.run(work())
    if as_json:
        show_json({**found._asdict(), "partitions": [list(each) for each in sorted(found.partitions)]})
        return
    show_table(
        ["coordinator", "state", "producer id", "epoch", "timeout ms", "started"],
        [
            [
                found.coordinator,
                found.state,
                found.producer_id,
                found.producer_epoch,
                found.timeout_ms,
                None if found.started_ms is None else f"@{found.started_ms}",
            ]
        ],
    )
    for partition in sorted(found.partitions):
        click.echo(f"  {partition.topic}:{partition.partition}")


@transactions.command()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@bootstrap_option
@json_option
def producers(place: str, bootstrap: str, as_json: bool) -> None:
    """Show the producers that partitions of a topic remember, and their open transactions."""

    async def work() -> list[tuple[TopicPartition, PartitionProducer]]:
        async with _admin(bootstrap) as admin:
            return [
                (partition, producer)
                for partition in await _partitions(admin, place)
                for producer in await admin.describe_producers(partition)
            ]

    found = asyncio.run(work())
    if as_json:
        show_json([_producer_document(partition, producer) for partition, producer in found])
        return
    show_table(
        [
            "partition",
            "producer id",
            "epoch",
            "last sequence",
            "last written",
            "coordinator epoch",
            "open since offset",
        ],
        [
            [
                partition.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                f"@{producer.last_timestamp_ms}",
                producer.coordinator_epoch,
                producer.transaction_start,
            ]
            for partition, producer in found
        ],
    )


@transactions.command("find-hanging")
@click.argument("places", metavar="[TOPIC[:PARTITION]]...", nargs=-1)
@click.option(
    "--minutes",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How long nothing must have been written: more than transaction.max.timeout.ms.",
)
@bootstrap_option
@json_option
def find_hanging(places: tuple[str, ...], minutes: int, bootstrap: str, as_json: bool) -> None:
    """Find transactions that a partition waits for and no coordinator knows of; in all topics, if none is named."""
    from tidelog.clock import SystemClock  # noqa: PLC0415 - --help must not pay for it

    older_than_ms = SystemClock().now_ms() - minutes * MINUTE_MS

    async def work() -> list[HangingTransaction]:
        async with _admin(bootstrap) as admin:
            wanted: list[TopicPartition] = []
            for place in places or [topic.name for topic in await admin.list_topics(include_internal=True)]:
                wanted += await _partitions(admin, place)
            return await admin.find_hanging_transactions(wanted, older_than_ms=older_than_ms)

    found = asyncio.run(work())
    if as_json:
        show_json(
            [
                {**_producer_document(each.partition, each.producer), "transactional_id": each.transactional_id}
                for each in found
            ]
        )
        return
    show_table(
        ["topic", "partition", "open since offset", "producer id", "epoch", "transactional id"],
        [
            [
                each.partition.topic,
                each.partition.partition,
                each.producer.transaction_start,
                each.producer.producer_id,
                each.producer.producer_epoch,
                each.transactional_id,
            ]
            for each in found
        ],
    )


@transactions.command()
@click.argument("place", metavar="TOPIC:PARTITION")
@click.option("--start-offset", type=int, required=True, help="Where it began, as find-hanging shows it.")
@bootstrap_option
@json_option
def abort(place: str, start_offset: int, bootstrap: str, as_json: bool) -> None:
    """Abort a transaction that hangs in one partition.

    Its coordinator is not asked: a transaction that is still being written would be torn apart.
    """

    async def work() -> tuple[TopicPartition, PartitionProducer]:
        async with _admin(bootstrap) as admin:
            partitions = await _partitions(admin, place)
            if len(partitions) != 1:
                raise click.ClickException(f"name one partition, such as {place}:0")
            (partition,) = partitions
            for producer in await admin.describe_producers(partition):
                if producer.transaction_start == start_offset:
                    await admin.abort_transaction(partition, producer)
                    return partition, producer
            raise click.ClickException(f"no transaction that began at offset {start_offset} is open in {place}")

    partition, producer = asyncio.run(work())
    if as_json:
        show_json(_producer_document(partition, producer))
    else:
        click.echo(
            f"aborted the transaction of producer {producer.producer_id} in {partition.topic}:{partition.partition}"
        )


def _admin(bootstrap: str) -> Admin:
    from tidelog.client.admin import Admin  # noqa: PLC0415 - --help must not pay for it

    return Admin(bootstrap)


async def _partitions(admin: Admin, place: str) -> Sequence[TopicPartition]:
    from tidelog.cli.names import choose_partitions, find_topic  # noqa: PLC0415

    topic, colon, number = place.rpartition(":")
    if not colon:
        topic, number = place, ""
    elif not number.isdecimal():
        raise click.ClickException(f"{place!r} is not TOPIC:PARTITION: {number!r} is not the number of a partition")
    return choose_partitions(await find_topic(admin, topic), [int(number)] if number else [])


def _producer_document(partition: TopicPartition, producer: PartitionProducer) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition, **producer._asdict()}
