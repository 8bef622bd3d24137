"""What docs/pipelines.md and docs/pipeline-examples.md show is what there is.

Pipelines in Python and YAML are loaded, as `tidelog pipeline validate` does. Commands are parsed by the program itself,
with all their options; those that create topics or produce are run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import pyarrow.dataset  # type: ignore[import-untyped]
import pytest

from tidelog.cli.app import app
from tidelog.client.blocking import Producer
from tidelog.pipelines.definition.loading import load

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess, StartBroker

ROOT = Path(__file__).parent.parent.parent
PAGES = ("pipelines.md", "pipeline-examples.md")
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+# .*$")
WITHIN_S = 240.0
"""For hanging, not for slowness."""
A_SINK = """

@write.console()
def shown(clicks: DataFrame) -> DataFrame:
    return clicks
"""


class Block(NamedTuple):
    page: str
    number: int
    language: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.page}-{self.number}"


def blocks(*languages: str) -> list[Block]:
    return [
        Block(page, number, language, body)
        for page in PAGES
        for number, (language, body) in enumerate(FENCED.findall((ROOT / "docs" / page).read_text()), 1)
        if language in languages
    ]


def pipelines() -> list[Block]:
    return [block for block in blocks("python", "yaml") if not runs(block)]


def commands() -> list[tuple[str, str]]:
    lines = [(block.name, line) for block in blocks("sh") for line in block.body.splitlines()]
    return [(name, command) for name, line in lines for command in COMMENT.sub("", line).split(" | ")]


def test_all_blocks_are_looked_at() -> None:
    looked_at = {*pipelines(), *blocks("sh"), *(block for block in blocks("python") if runs(block))}
    assert looked_at == {block for page in PAGES for block in blocks("python", "sh", "yaml") if block.page == page}
    every = sum(len(FENCED.findall((ROOT / "docs" / page).read_text())) for page in PAGES)
    assert len(looked_at) == every


def runs(block: Block) -> bool:
    """Those that are no pipelines: here, or with the examples."""
    return "build_session" in block.body or "customers-history" in block.body


@pytest.mark.parametrize("block", pipelines(), ids=lambda block: block.name)
def test_a_pipeline_is_one(block: Block, tmp_path: Path) -> None:
    file = tmp_path / ("sales.py" if block.language == "python" else "sales.yaml")
    with_sink = block.language == "yaml" or "@write." in block.body
    body = block.body if with_sink else block.body.replace("json, read", "json, read, write") + A_SINK
    file.write_text(body)
    found = load(file)
    assert found.name == "sales"
    assert found.unused() == []


def parse(command: list[str]) -> None:
    """As the program does, without running anything; what it does not know is an error."""
    found: click.Command = app
    context = click.Context(app, info_name="tidelog")
    while isinstance(found, click.Group):
        name, *command = command
        inner = found.get_command(context, name)
        assert inner is not None, f"there is no command {name}"
        found, context = inner, click.Context(inner, info_name=name, parent=context)
    with found.make_context(found.name, list(command), parent=context.parent):
        pass


@pytest.mark.parametrize(("block", "command"), commands())
def test_a_command_is_one(block: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    if words[0] != "tidelog":
        assert words[0] in {"echo", "pip", "printf"}, f"{block}: what is {words[0]}?"
        return
    parse(words[1:])
    for word in words:
        if word.startswith("examples/"):
            assert load(ROOT / word).queries


def test_what_is_to_be_typed_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    parse(["pipeline", "once", "sales.py"])
    with pytest.raises(click.NoSuchOption):
        parse(["pipeline", "once", "sales.py", "--again"])
    with pytest.raises(AssertionError, match="there is no command twice"):
        parse(["pipeline", "twice", "sales.py"])


def test_what_is_produced_can_be(fresh_broker: StartBroker) -> None:
    lines = [line for block in blocks("sh") for line in block.body.splitlines()]
    producing = [line for line in lines if "tidelog produce" in line or "tidelog topic create" in line]
    assert len(producing) > 10
    done = subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(producing)],
        env={
            **os.environ,
            "TIDELOG_BOOTSTRAP": fresh_broker().bootstrap,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_first_pipeline_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    block = pipelines()[0]
    file = tmp_path / "sales.py"
    file.write_text(block.body.replace("/data/sales", f"{tmp_path}/sales").replace('"orders"', '"first-orders"'))
    with Producer(broker.bootstrap) as producer:
        for number, minute in ((1, 0), (1, 0), (2, 0), (3, 50)):
            value = {"id": number, "product": "tea", "amount": 100.0 + number, "at": f"2026-01-01T10:{minute:02}:00Z"}
            producer.send("first-orders", json.dumps(value).encode()).result()
        producer.send("products", b'{"name": "Tea", "category": "drinks"}', key=b"tea").result()
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "pipeline", "once", str(file), "--bootstrap", broker.bootstrap],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = pyarrow.dataset.dataset(tmp_path / "sales", exclude_invalid_files=True).to_table().to_pylist()
    assert [(row["product"], row["total"]) for row in rows] == [("tea", 203.0)], "the window that is over"


def test_a_script_has_a_session(broker: BrokerProcess, tmp_path: Path) -> None:
    (block,) = (block for block in blocks("python") if "build_session" in block.body)
    with Producer(broker.bootstrap) as producer:
        producer.send("orders", b"{}")
    done = subprocess.run(
        [sys.executable, "-c", block.body.replace("localhost:9092", broker.bootstrap)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
