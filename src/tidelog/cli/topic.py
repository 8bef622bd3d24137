"""`tidelog topic`: creates, lists, describes, changes and deletes topics."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import bootstrap_option, json_option, key_values
from tidelog.cli.output import show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.descriptions import ConfigEntry, TopicDescription


@click.group()
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@topic.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), help="How many; without it the broker decides.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="Copies of each; without it the broker decides.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic is there already.")
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic."""
    settings = key_values(configs, "--config")

    async def work() -> dict[str, Any]:
        from tidelog.client import Admin, BrokerError, ErrorCode  # noqa: PLC0415 - --help must not pay for it
        from tidelog.types import format_topic_id  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            try:
                created = await admin.create_topic(
                    name,
                    partitions=partitions or -1,
                    replication_factor=replication_factor or -1,
                    configs=settings,
                )
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                found = await admin.describe_topic(name)
                return {**_summary(found), "created": False}
            return {
                "name": created.name,
                "topic_id": format_topic_id(created.topic_id),
                "partitions": created.partitions,
                "replication_factor": created.replication_factor,
                "internal": False,
                "created": True,
            }

    result = asyncio.run(work())
    if as_json:
        show_json(result)
    elif result["created"]:
        click.echo(f"created topic {name} with {_count(result['partitions'], 'partition')}")
    else:
        click.echo(f"topic {name} exists already with {_count(result['partitions'], 'partition')}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also the topics that brokers keep for themselves.")
@bootstrap_option
@json_option
def list_(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics."""

    async def work() -> list[TopicDescription]:
        from tidelog.client import Admin  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            return await admin.list_topics(include_internal=internal)

    topics = asyncio.run(work())
    if as_json:
        show_json([_summary(each) for each in topics])
    elif not topics:
        click.echo("no topics yet: create one with `tidelog topic create NAME`", err=True)
    else:
        show_table(
            ["topic", "partitions", "replicas"],
            [[each.name, len(each.partitions), each.replication_factor] for each in topics],
        )


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show the partitions of topics, who leads them, and the settings that are not defaults."""

    async def work() -> list[tuple[TopicDescription, list[ConfigEntry]]]:
        from tidelog.cli.names import find_topics  # noqa: PLC0415
        from tidelog.client import Admin, ConfigResource  # noqa: PLC0415
        from tidelog.client.descriptions import ConfigSource  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            described: list[tuple[TopicDescription, list[ConfigEntry]]] = []
            for found in await find_topics(admin, names):
                entries = await admin.describe_configs(ConfigResource.of_topic(found.name))
                described.append((found, [entry for entry in entries if entry.source == ConfigSource.TOPIC]))
            return described

    described = asyncio.run(work())
    if as_json:
        show_json([_details(found, entries) for found, entries in described])
        return
    for found, entries in described:
        summary = _summary(found)
        click.echo(f"{found.name}  id {summary['topic_id']}  {_count(len(found.partitions), 'partition')}")
        for entry in entries:
            click.echo(f"  {entry.name} = {entry.value}")
        show_table(
            ["partition", "leader", "epoch", "replicas", "in sync"],
            [
                [
                    partition.index,
                    partition.leader if partition.leader >= 0 else None,
                    partition.leader_epoch,
                    ", ".join(map(str, partition.replicas)),
                    ", ".join(map(str, partition.isr)),
                ]
                for partition in found.partitions
            ],
        )


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics and everything in them."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"delete {', '.join(names)} and everything in them?", abort=True, err=True)

    async def work() -> None:
        from tidelog.cli.names import find_topics  # noqa: PLC0415
        from tidelog.client import Admin, BrokerError  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            await find_topics(admin, names)
            for outcome in (await admin.delete_topics(names)).values():
                if isinstance(outcome, BrokerError):
                    raise outcome

    asyncio.run(work())
    if as_json:
        show_json({"deleted": list(names)})
    else:
        click.echo(f"deleted {', '.join(names)}")


@topic.command("add-partitions")
@click.argument("name")
@click.argument("total", type=click.IntRange(min=1))
@bootstrap_option
@json_option
def add_partitions(name: str, total: int, bootstrap: str, as_json: bool) -> None:
    """Grow a topic to TOTAL partitions. Records of a key may go to another partition from then on."""

    async def work() -> None:
        from tidelog.cli.names import find_topic  # noqa: PLC0415
        from tidelog.client import Admin  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            await find_topic(admin, name)
            await admin.add_partitions(name, total)

    asyncio.run(work())
    if as_json:
        show_json({"name": name, "partitions": total})
    else:
        click.echo(f"topic {name} has {_count(total, 'partition')} now")


@topic.group()
def config() -> None:
    """Show or change the settings of a topic."""


@config.command()
@click.argument("name")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@bootstrap_option
@json_option
def get(name: str, keys: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show all settings of a topic, or those named, and where each comes from."""

    async def work() -> list[ConfigEntry]:
        from tidelog.cli.names import find_topic  # noqa: PLC0415
        from tidelog.client import Admin, ConfigResource  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            await find_topic(admin, name)
            return await admin.describe_configs(ConfigResource.of_topic(name), keys or None)

    entries = asyncio.run(work())
    unknown = set(keys) - {entry.name for entry in entries}
    if unknown:
        raise click.ClickException(f"topics have no setting {', '.join(sorted(unknown))}")
    if as_json:
        show_json([_setting(entry) for entry in entries])
    else:
        show_table(["setting", "value", "from"], [[entry.name, entry.value, _source(entry)] for entry in entries])


@config.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--unset", multiple=True, metavar="KEY", help="Go back to the default; may be repeated.")
@bootstrap_option
@json_option
def set_(name: str, settings: tuple[str, ...], unset: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Change settings of a topic, at once and for good; the others stay as they are."""
    changes = key_values(settings, "set")
    if not changes and not unset:
        raise click.UsageError("name at least one KEY=VALUE, or --unset KEY", click.get_current_context())

    async def work() -> None:
        from tidelog.cli.names import find_topic  # noqa: PLC0415
        from tidelog.client import Admin, ConfigResource  # noqa: PLC0415

        async with Admin(bootstrap) as admin:
            await find_topic(admin, name)
            await admin.alter_configs(ConfigResource.of_topic(name), set=changes, delete=unset)

    asyncio.run(work())
    if as_json:
        show_json({"name": name, "set": changes, "unset": list(unset)})
    else:
        for key, value in changes.items():
            click.echo(f"{name}: {key} = {value}")
        for key in unset:
            click.echo(f"{name}: {key} is back to its default")


def _summary(found: TopicDescription) -> dict[str, Any]:
    from tidelog.types import format_topic_id  # noqa: PLC0415

    return {
        "name": found.name,
        "topic_id": format_topic_id(found.topic_id),
        "partitions": len(found.partitions),
        "replication_factor": found.replication_factor,
        "internal": found.internal,
    }


def _details(found: TopicDescription, entries: list[ConfigEntry]) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition.index,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "offline": list(partition.offline),
        }
        for partition in found.partitions
    ]
    return {**_summary(found), "partitions": partitions, "configs": {entry.name: entry.value for entry in entries}}


def _setting(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": _source(entry),
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
    }


def _source(entry: ConfigEntry) -> str:
    return entry.source.name.lower().replace("_", " ")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
