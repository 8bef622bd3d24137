"""`tidelog cluster start|stop|status|kill|restart|logs`: a cluster on this machine, for development and tests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.cli.options import json_option, key_values
from tidelog.cli.output import show_json, show_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.local_cluster.cluster import LocalCluster
    from tidelog.local_cluster.status import ClusterStatus

F = TypeVar("F", bound="Callable[..., Any]")

_LOG_LINES = 50

dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="TIDELOG_CLUSTER_DIR",
    show_envvar=True,
    metavar="DIR",
    help="Where the cluster keeps all it has. Without it, tidelog/cluster among the user's own state.",
)


@click.command()
@click.option("--brokers", type=click.IntRange(1, 50), help="How many; 3 unless there were others before.")
@click.option("--zookeeper", metavar="HOST:PORT,...[/PATH]", help="Use a ZooKeeper that runs already.")
@click.option("--zookeeper-servers", type=click.Choice(["1", "3"]), help="Servers of a ZooKeeper of its own; 1.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a property of all brokers.")
@click.option("--racks", metavar="A,B,C", help="Racks, given to the brokers in turn.")
@click.option("--port", type=click.IntRange(1, 31_999), help="The first port to try; 9092.")
@dir_option
def start(
    brokers: int | None,
    zookeeper: str | None,
    zookeeper_servers: str | None,
    assignments: tuple[str, ...],
    racks: str | None,
    port: int | None,
    directory: Path | None,
) -> None:
    """Start a cluster on this machine.

    Brokers and, unless one is named, ZooKeeper run in the background until `tidelog cluster stop`. A cluster that was
    stopped is started again with its data, ports and settings; it may get more brokers and other settings.
    """
    if zookeeper and zookeeper_servers:
        raise click.UsageError("--zookeeper and --zookeeper-servers exclude each other", click.get_current_context())
    settings = key_values(assignments, "--set")
    names = [rack.strip() for rack in racks.split(",")] if racks else []
    if not all(names):
        raise click.UsageError(f"--racks takes names with commas between, not {racks!r}", click.get_current_context())

    from tidelog.local_cluster.cluster import Plan  # noqa: PLC0415 - --help must not pay for it

    plan = Plan(brokers, zookeeper, int(zookeeper_servers) if zookeeper_servers else None, settings, names, port)
    with told():
        known = opened(directory).start(plan)
    click.echo(known.bootstrap)


@click.command()
@dir_option
def stop(directory: Path | None) -> None:
    """Stop the cluster: brokers one after the other, which hand over what they lead, then ZooKeeper."""
    with told():
        opened(directory).stop()


@click.command()
@dir_option
@json_option
def status(directory: Path | None, as_json: bool) -> None:
    """Show the processes of the cluster, where they listen and what they do."""
    from tidelog.local_cluster.status import look  # noqa: PLC0415

    with told():
        found = look(opened(directory))
    if as_json:
        show_json(_as_json(found))
        return
    click.echo(f"cluster {found.cluster_id or 'does not answer'} in {found.directory}")
    rows: list[list[str | int | None]] = [
        [f"broker {each.id}", each.address, each.pid, each.rack, each.role, each.state] for each in found.brokers
    ]
    rows += [
        [f"zookeeper {each.number}", each.address, each.pid, None, None, each.state] for each in found.zookeeper_servers
    ]
    if not found.zookeeper_servers:
        rows.append(["zookeeper", found.zookeeper, None, None, None, "not ours"])
    show_table(["process", "address", "pid", "rack", "role", "state"], rows)


@click.command()
@click.argument("number", type=int, metavar="N")
@dir_option
def kill(number: int, directory: Path | None) -> None:
    """End broker N at once (SIGKILL), as a crash would."""
    with told():
        opened(directory).kill(number)


@click.command()
@click.argument("number", type=int, metavar="N")
@dir_option
def restart(number: int, directory: Path | None) -> None:
    """Start broker N again on its port and its data; stop it first if it runs."""
    with told():
        opened(directory).restart(number)


@click.command()
@click.argument("process", metavar="N|zookeeper[-N]")
@click.option("--lines", type=click.IntRange(min=1), default=_LOG_LINES, show_default=True, help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@dir_option
def logs(process: str, lines: int, follow: bool, directory: Path | None) -> None:
    """Show the end of a process's log: that of broker N, or of a ZooKeeper server."""
    from tidelog.local_cluster import broker_log  # noqa: PLC0415

    with told():
        path = _log_file(opened(directory), process)
    click.echo(broker_log.tail(path, lines))
    if follow:
        for text in broker_log.follow(path):
            click.echo(text, nl=False)


COMMANDS = (start, stop, status, kill, restart, logs)


def opened(directory: Path | None) -> LocalCluster:
    from tidelog.local_cluster.cluster import LocalCluster  # noqa: PLC0415
    from tidelog.local_cluster.directory import default_directory  # noqa: PLC0415

    return LocalCluster(
        directory or default_directory(os.environ), tell=lambda progress: click.echo(progress, err=True)
    )


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What goes wrong with the cluster becomes what the user is told."""
    from tidelog.local_cluster.errors import LocalClusterError  # noqa: PLC0415

    try:
        yield
    except LocalClusterError as error:
        raise click.ClickException(str(error)) from None


def _log_file(cluster: LocalCluster, process: str) -> Path:
    known = cluster.known()
    if process.isdigit():
        path = cluster.directory.log(known.broker(int(process)).id)
    else:
        name, _, number = process.partition("-")
        servers = cluster.zookeeper(known)
        if name != "zookeeper" or not (number or "1").isdigit():
            raise click.UsageError(
                f"name a broker's number, or zookeeper, not {process!r}", click.get_current_context()
            )
        if servers is None or int(number or 1) not in servers.numbers:
            raise click.ClickException(f"the cluster has no ZooKeeper server {number or 1} of its own")
        path = servers.log_file(int(number or 1))
    if not path.exists():
        raise click.ClickException(f"there is no log yet: {path}")
    return path


def _as_json(found: ClusterStatus) -> dict[str, Any]:
    return {
        **found._asdict(),
        "zookeeper_servers": [each._asdict() for each in found.zookeeper_servers],
        "brokers": [each._asdict() for each in found.brokers],
    }
