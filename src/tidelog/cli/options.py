"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

F = TypeVar("F", bound="Callable[..., Any]")

bootstrap_option = click.option(
    "--bootstrap",
    envvar="TIDELOG_BOOTSTRAP",
    default="localhost:9092",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Brokers to ask first.",
    callback=lambda _ctx, _parameter, value: checked_bootstrap(value),
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def checked_bootstrap(value: str) -> str:
    from tidelog.client.bootstrap import parse_bootstrap  # noqa: PLC0415 - --help must not pay for it

    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def key_values(texts: Iterable[str], option: str) -> dict[str, str]:
    """Reads `key=value` texts; `option` is named when one is not."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{option} takes KEY=VALUE, not {text!r}", click.get_current_context(silent=True))
        pairs[key.strip()] = value
    return pairs
