"""`python -m bench`: measures, shows one table, and writes JSON for programs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from bench import client_rows, report, start_rows, wire_rows
from bench.plan import FULL, SHORT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from bench.plan import Plan
    from bench.results import Row

GROUPS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "start": start_rows.start,
    "tiny": wire_rows.tiny,
    "produce": wire_rows.produce,
    "produce-growing": wire_rows.produce_growing,
    "produce-synced": wire_rows.produce_synced,
    "fetch": wire_rows.fetch,
    "clients": client_rows.clients,
    "partitions": start_rows.partitions,
    "kafka": client_rows.against_kafka,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    plan = SHORT if options.short else FULL
    names = options.only or [name for name in GROUPS if name != "kafka"]
    if options.kafka and "kafka" not in names:
        names.append("kafka")
    began = time.monotonic()
    rows: list[Row] = []
    for name in names:
        print(f"measuring: {name}", file=sys.stderr)
        rows += GROUPS[name](plan)
    report.report(
        rows, f"{time.monotonic() - began:.0f} s, best of {plan.trials} where trials are repeated", options.json
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = report.parser("bench", "Measure Tidelog's speed and memory.")
    parser.epilog = "Consumer groups, compaction and more have benches of their own: `make help` lists them."
    parser.add_argument("--only", metavar="NAME", action="append", choices=GROUPS, help=f"one of {', '.join(GROUPS)}")
    parser.add_argument("--kafka", action="store_true", help="compare with Apache Kafka too (needs Java and Maven)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
