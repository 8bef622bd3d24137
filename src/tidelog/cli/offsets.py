"""`tidelog offsets`: where the partitions of a topic start and end, and where a point in time lies in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.offsets import OffsetSpec


@click.command()
@click.argument("topic")
@click.option("--at", "times", multiple=True, metavar="TIME", help="Also the first record at or after TIME.")
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; may be repeated.")
@bootstrap_option
@json_option
def offsets(topic: str, times: tuple[str, ...], partitions: tuple[int, ...], bootstrap: str, as_json: bool) -> None:
    """Show the first offset, the end, and the number of records between them, of each partition of TOPIC.

    TIME is milliseconds since 1970 as @1700000000000, a date such as 2026-03-01T12:00:00Z, or a time ago such as 2h.
    """
    from tidelog.cli.starts import parse_time  # noqa: PLC0415 - --help must not pay for it
    from tidelog.client import OffsetSpec  # noqa: PLC0415

    specs = {"start": OffsetSpec.earliest(), "end": OffsetSpec.latest()}
    for time in times:
        try:
            specs[time] = OffsetSpec.at_timestamp(parse_time(time))
        except ValueError as error:
            raise click.UsageError(f"--at: {error}", click.get_current_context()) from None
    rows = asyncio.run(_look_up(bootstrap, topic, partitions, specs))
    if as_json:
        show_json([_document(row, times) for row in rows])
    else:
        columns = ["partition", "start", "end", "records", *times]
        show_table(columns, [[row[column] for column in columns] for row in rows])


def _document(row: dict[str, Any], times: tuple[str, ...]) -> dict[str, Any]:
    fixed = {name: row[name] for name in ("partition", "start", "end", "records")}
    return {**fixed, "at": {time: row[time] for time in times}} if times else fixed


async def _look_up(
    bootstrap: str, name: str, wanted: tuple[int, ...], specs: dict[str, OffsetSpec]
) -> list[dict[str, Any]]:
    from tidelog.cli.names import choose_partitions, find_topic  # noqa: PLC0415
    from tidelog.client import Admin  # noqa: PLC0415

    async with Admin(bootstrap) as admin:
        partitions = choose_partitions(await find_topic(admin, name), wanted)
        found = {label: await admin.list_offsets(dict.fromkeys(partitions, spec)) for label, spec in specs.items()}
    rows: list[dict[str, Any]] = []
    for partition in partitions:
        row: dict[str, Any] = {"partition": partition.partition}
        for label, offsets_found in found.items():
            offset = offsets_found[partition]
            row[label] = offset.offset if offset is not None else None
        rows.append({**row, "records": row["end"] - row["start"]})
    return rows
