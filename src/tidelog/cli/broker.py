"""`tidelog broker`: runs a broker in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os

import click


@click.command()
@click.option("--config", "file", type=click.Path(dir_okay=False), help="A file with Kafka's server properties.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one property; may be repeated, and wins over the file and the environment.",
)
@click.pass_context
def broker(ctx: click.Context, file: str | None, assignments: tuple[str, ...]) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    Properties have Kafka's names. They are taken from the file, then from KAFKA_* environment variables
    (KAFKA_LOG_DIRS is log.dirs), then from --set; later ones win. Without any, the broker listens on port 9092.
    """
    from tidelog.config.sources import load_properties  # noqa: PLC0415 - --help must not pay for it

    properties = load_properties(file, environment=os.environ, assignments=assignments)

    from tidelog.broker.run import run_broker  # noqa: PLC0415 - a broker is a lot to load for a bad command line

    ctx.exit(run_broker(properties))
