"""Every shell block of the README and of the pages under docs does what it says.

Commands of `tidelog` run for real, in their order, against a broker or as a cluster of their own. Of `make` and of the
benches, which take minutes, it is made sure that there is such a target and such an option; other tests run short ones.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tidelog.local_cluster.ports import scattered_ports

if TYPE_CHECKING:
    from tidelog.testing import StartBroker

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parent.parent.parent
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LANGUAGES = {"json", "mermaid", "python", "sh", "sql", "text", "yaml"}
PAGES_WITH_TESTS_OF_THEIR_OWN = {"pipeline-examples.md", "pipelines.md", "spark-pipelines.md"}
SHOWN_ELSEWHERE = re.compile(r"^(pip install |tidelog demo$)")
"""That tests run at all is proof of the one: `make test` installs the package so. The demo has tests of its own."""
COMMENT = re.compile(r"\s+# .*$")
WITHIN_S = 240.0
"""For hanging, not for slowness."""


class Block(NamedTuple):
    page: str
    number: int
    language: str
    lines: list[str]

    @property
    def name(self) -> str:
        return f"{self.page}-{self.number}"


def all_blocks() -> list[Block]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        Block(page.name, number, language, [COMMENT.sub("", line) for line in body.splitlines() if line.strip()])
        for page in pages
        for number, (language, body) in enumerate(FENCED.findall(page.read_text()), 1)
    ]


def shell_blocks() -> list[Block]:
    return [
        block for block in all_blocks() if block.language == "sh" and block.page not in PAGES_WITH_TESTS_OF_THEIR_OWN
    ]


def run_commands(commands: list[str], directory: Path, settings: dict[str, str]) -> None:
    bin_directory = Path(sys.executable).parent
    environment = {**os.environ, **settings, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(commands)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def run_broker(command: str, directory: Path, port: int) -> None:
    """Starts it as the page says, but on another port and with data elsewhere, until it listens; then stops it."""
    elsewhere = f"--set listeners=PLAINTEXT://127.0.0.1:{port} --set log.dirs={directory / 'data'}"
    process = subprocess.Popen(
        ["bash", "-c", f"exec env {command.replace('tidelog', f'{sys.executable} -m tidelog')} {elsewhere}"],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed: list[str] = []
        while not any("ready: broker" in line for line in printed):
            line = process.stdout.readline()
            assert line, "".join(printed)
            printed.append(line)
    finally:
        process.terminate()
        process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0


def check_make(command: str) -> None:
    words = ["make", "-n", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_options(command: str) -> None:
    """Of a Python program in the repo: it is there, and knows its options."""
    words = [word for word in shlex.split(command) if "=" not in word]
    program, options = words[1:3], [word for word in words[3:] if word.startswith("--")]
    done = subprocess.run(
        [sys.executable, *program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    for option in options:
        assert re.search(rf"{option}\b", done.stdout), f"{program} has no {option}"


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.name)
def test_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES


@pytest.mark.parametrize("block", shell_blocks(), ids=lambda block: block.name)
def test_commands_run(block: Block, fresh_broker: StartBroker, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    (first_port,) = scattered_ports(1)
    in_order: list[str] = []
    for line in block.lines:
        if line.startswith("make "):
            check_make(line)
        elif ".venv/bin/python -m " in line:
            check_options(line)
        elif "tidelog broker" in line:
            run_broker(line, tmp_path, first_port)
        elif not SHOWN_ELSEWHERE.match(line):
            in_order.append(line.replace("cluster start", f"cluster start --port {first_port}"))
    if not in_order:
        return
    settings = {"TIDELOG_CLUSTER_DIR": str(tmp_path / "cluster")}
    if any("cluster start" in line for line in in_order):
        settings["TIDELOG_BOOTSTRAP"] = f"localhost:{first_port}"
    else:
        settings["TIDELOG_BOOTSTRAP"] = fresh_broker().bootstrap
    run_commands(in_order, tmp_path, settings)
