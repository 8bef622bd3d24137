"""Runs a command and turns whatever ends it into one line for the user and an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from tidelog.cli.app import Interrupted, OutputGone, app

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def run(arguments: Sequence[str]) -> int:
    try:
        outcome = app.main(list(arguments), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, OutputGone):
        # Python flushes once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, Interrupted, click.Abort):
        if sys.stderr.isatty():
            click.echo(err=True)  # what comes next begins on a line of its own
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        return _complain(_usage(error), EXIT_USAGE)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except Exception as error:
        told = _explain(error)
        if told is None:
            raise
        return _complain(*told)
    return outcome if isinstance(outcome, int) else 0


def _complain(message: str, code: int) -> int:
    click.echo(f"tidelog: {message}", err=True)
    return code


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    path = error.ctx.command_path if error.ctx is not None else "tidelog"
    return f"{message[:1].lower()}{message[1:]} (see {path} --help)"


def _explain(error: Exception) -> tuple[str, int] | None:
    """What to say of an error that is the user's or the cluster's; None: it is ours, and deserves its traceback."""
    from tidelog.client.errors import BrokersUnreachable, ClientError  # noqa: PLC0415 - needed only when it fails
    from tidelog.config.definition import ConfigError  # noqa: PLC0415
    from tidelog.errors import BrokerError  # noqa: PLC0415

    if isinstance(error, BrokersUnreachable):
        tried = "; ".join(reason if address in reason else f"{address}: {reason}" for address, reason in error.failures)
        hint = "start one with `tidelog broker`, or name another with --bootstrap"
        return f"no broker could be reached: {tried}; {hint}", EXIT_UNREACHABLE
    if isinstance(error, BrokerError):
        return f"{error.message} ({error.code.name})" if error.code.name not in error.message else error.message, 1
    if isinstance(error, ClientError):
        return str(error), EXIT_FAILED
    if isinstance(error, ConfigError):
        return str(error), EXIT_USAGE
    return None
