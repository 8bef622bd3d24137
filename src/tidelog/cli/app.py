"""The `tidelog` command. Each subcommand's module is loaded only when it is asked for: start-up is most of the time."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any, NamedTuple

import click

import tidelog


class Home(NamedTuple):
    module: str
    help: str


COMMANDS = {
    "broker": Home("tidelog.cli.broker", "Run a broker in the foreground."),
    "topic": Home("tidelog.cli.topic", "Create, list, describe, change and delete topics."),
    "produce": Home("tidelog.cli.produce", "Send lines of text to a topic."),
    "consume": Home("tidelog.cli.consume", "Print the records of a topic."),
    "offsets": Home("tidelog.cli.offsets", "Show where the partitions of a topic start and end."),
    "transactions": Home("tidelog.cli.transactions", "Show transactions; find and abort those that hang."),
    "cluster": Home("tidelog.cli.cluster", "Describe the cluster: brokers, controller, log directories."),
    "pipeline": Home("tidelog.cli.pipeline", "Run pipelines on Spark, and see how they are."),
    "log": Home("tidelog.cli.log", "Look into the files of a log directory."),
    "demo": Home("tidelog.cli.demo", "Start a broker and a pipeline, and watch events stream through them."),
}


class OutputGone(Exception):  # noqa: N818 - named for the fact it reports
    """Whoever read our output went away."""


class Interrupted(Exception):  # noqa: N818
    """The user pressed Ctrl-C."""


class LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Takes these two before click does, which would print, and end the process as if it had failed."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputGone from error
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        command = getattr(import_module(home.module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, home.help) for name, home in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Exit codes: 0 success; 1 the command failed, or found damage; 2 the command line or a configuration is "
        "wrong; 3 no broker could be reached; 130 interrupted; 141 whoever read the output went away."
    ),
)
@click.version_option(tidelog.__version__, prog_name="tidelog", message="%(prog)s %(version)s")
def app() -> None:
    """Tidelog: a partitioned, replicated commit log that speaks Kafka's protocol."""
