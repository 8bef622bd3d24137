"""`tidelog demo`: starts a broker and a pipeline, sends a shop's events through them, and checks what came of it."""

from __future__ import annotations

import click

_RECORDS = 60_000
_RECORDS_WITHOUT_SPARK = 200_000
_SEED = 20260301


@click.command()
@click.option(
    "--records",
    type=click.IntRange(min=1),
    help=f"How many events; {_RECORDS:,}, or {_RECORDS_WITHOUT_SPARK:,} without Spark.",
)
@click.option("--seed", type=int, default=_SEED, show_default=True, help="The same seed makes the same events.")
@click.option("--keep", is_flag=True, help="Leave broker and pipeline running, and say how to use them.")
@click.option("--without-spark", is_flag=True, help="Only send the events through a broker, and read them back.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(records: int | None, seed: int, keep: bool, without_spark: bool, as_json: bool) -> None:
    """Start a broker and a pipeline in a temporary directory, and watch a shop's events stream through them.

    Orders and clicks are sent, a few of them malformed or late. A pipeline on Spark joins them, sums up what is sold in
    ten minutes, and writes topics and Parquet files. In the end it is checked that every good order counts once, and
    that what is malformed, and only that, is among the dead letters. It takes about a minute.

    Without Spark, events are produced and consumed at the same time; every record must come back, in order. After ten
    seconds nothing more is sent, however many records were asked for.
    """
    if without_spark:
        from tidelog.cli.demo_stream import stream  # noqa: PLC0415 - --help must not pay for it

        stream(records or _RECORDS_WITHOUT_SPARK, seed, keep=keep, as_json=as_json)
        return
    from tidelog.cli.demo_run import run_shop  # noqa: PLC0415

    run_shop(records or _RECORDS, seed, keep=keep, as_json=as_json)
