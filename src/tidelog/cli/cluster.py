"""`tidelog cluster`: who is in the cluster and how full its disks are; and a cluster of one's own on this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from tidelog.cli.cluster_local import COMMANDS
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import human_bytes, show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.descriptions import ClusterDescription, LogDir


@click.group()
def cluster() -> None:
    """Describe a cluster; start and stop one on this machine."""


for _command in COMMANDS:
    cluster.add_command(_command)


@cluster.command()
@bootstrap_option
@json_option
def describe(bootstrap: str, as_json: bool) -> None:
    """Show the brokers, the controller and the cluster's id."""

    async def work() -> ClusterDescription:
        from tidelog.client import Admin  # noqa: PLC0415 - --help must not pay for it

        async with Admin(bootstrap) as admin:
            return await admin.describe_cluster()

    found = asyncio.run(work())
    if as_json:
        brokers = [{"id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in found.brokers]
        show_json({"cluster_id": found.cluster_id, "controller_id": found.controller_id, "brokers": brokers})
        return
    click.echo(f"cluster {found.cluster_id}")
    show_table(
        ["broker", "address", "rack", "role"],
        [
            [b.id, f"{b.host}:{b.port}", b.rack, "controller" if b.id == found.controller_id else ""]
            for b in found.brokers
        ],
    )


@cluster.command("log-dirs")
@bootstrap_option
@json_option
def log_dirs(bootstrap: str, as_json: bool) -> None:
    """Show every broker's log directories and what is in them."""

    async def work() -> list[LogDir]:
        from tidelog.client import Admin  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            return await admin.describe_log_dirs()

    found = asyncio.run(work())
    if as_json:
        show_json(
            [
                {
                    "broker": each.broker,
                    "path": each.path,
                    "error": each.error.name,
                    "total_bytes": each.total_bytes,
                    "usable_bytes": each.usable_bytes,
                    "partitions": {str(partition): size for partition, size in each.partition_bytes.items()},
                }
                for each in found
            ]
        )
        return
    show_table(
        ["broker", "directory", "partitions", "size", "free", "state"],
        [
            [
                each.broker,
                each.path,
                len(each.partition_bytes),
                human_bytes(sum(each.partition_bytes.values())),
                human_bytes(each.usable_bytes) if each.usable_bytes >= 0 else None,
                "ok" if not each.error else each.error.name,
            ]
            for each in found
        ],
    )
