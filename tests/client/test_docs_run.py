"""Every Python block of the README and of the pages under docs runs against a broker.

A block with a test in it is run as that test. One that waits for records has done its part with the first line it
prints. docs/client.md reads as one program, and has a test of its own; so have the pages about pipelines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES_WITH_TESTS_OF_THEIR_OWN = {"client.md", "pipelines.md", "pipeline-examples.md"}
ENDLESS = re.compile(r"^\s*while True:", re.MULTILINE)
WITHIN_S = 270.0
"""For hanging, not for slowness."""

SEND_AN_ORDER = """
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "localhost:9092"})
producer.produce("orders", b"{}")
producer.flush()
"""


class Block(NamedTuple):
    page: str
    number: int
    source: str


def blocks() -> list[Block]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        Block(page.name, number, source)
        for page in pages
        if page.name not in PAGES_WITH_TESTS_OF_THEIR_OWN
        for number, source in enumerate(BLOCK.findall(page.read_text()), 1)
    ]


def run(source: str, broker: BrokerProcess, *, until_it_prints: bool = False) -> str:
    """What it printed; fails if it ended badly."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", source.replace("localhost:9092", broker.bootstrap)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            if until_it_prints:
                assert process.stdout is not None
                line = process.stdout.readline()
                process.terminate()
                _, errors = process.communicate(timeout=WITHIN_S)
                assert line, errors
                return line
            printed, errors = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return printed


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page}-{block.number}")
def test_a_block_runs(block: Block, broker: BrokerProcess, tmp_path: Path) -> None:
    tests = re.findall(r"^def (test_\w+)", block.source, re.MULTILINE)
    if tests:
        calls = "".join(f"\n{name}(Path({str(tmp_path)!r}))" for name in tests)
        run(block.source + calls, broker)
    elif ENDLESS.search(block.source):
        run(SEND_AN_ORDER, broker)
        run(block.source, broker, until_it_prints=True)
    else:
        run(block.source, broker)
