"""`python -m bench`: measures, shows one table, and writes JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import client_rows, start_rows, wire_rows
from bench.plan import FULL, SHORT
from bench.table import show

if TYPE_CHECKING:
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
    show(rows, f"{machine()}; {time.monotonic() - began:.0f} s, best of {plan.trials} where trials are repeated")
    if options.json:
        facts = {"machine": machine(), "rows": [row.as_json() for row in rows]}
        options.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return 0


def machine() -> str:
    one, five, _ = os.getloadavg()
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"load {one:.1f} now and {five:.1f} over 5 minutes"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Tidelog's speed and memory.",
        epilog="Consumer groups and compaction have benches of their own: `bench.groups` and `bench.compaction`.",
    )
    parser.add_argument("--only", metavar="NAME", action="append", choices=GROUPS, help=f"one of {', '.join(GROUPS)}")
    parser.add_argument("--short", action="store_true", help="a quick look: small amounts, one trial each")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to FILE too")
    parser.add_argument("--kafka", action="store_true", help="compare with Apache Kafka too (needs Java and Maven)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
