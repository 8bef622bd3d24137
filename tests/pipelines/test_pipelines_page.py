"""docs/pipelines.md leaves nothing out: it names every keyword, setting, format, command, option and metric."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from tidelog.cli.pipeline import pipeline as commands
from tidelog.pipelines import Settings, read, write
from tidelog.pipelines.definition.formats import FORMATS
from tidelog.pipelines.runner.prometheus import exposition
from tidelog.pipelines.sink import options as sink_options
from tidelog.pipelines.source import options as source_options

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parent.parent.parent / "docs" / "pipelines.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "build",
    [read.topic, read.table, read.files, read.jdbc, read.rate, write.topic, write.table, write.files, write.jdbc],
    ids=lambda build: str(build.__qualname__),
)
def test_it_names_every_keyword(build: Callable[..., object]) -> None:
    missing = [
        name for name in inspect.signature(build).parameters if f"`{name}`" not in PAGE and f"{name}=" not in PAGE
    ]
    assert set(missing) <= {"path", "url", "topic", "rows_per_second"}, "only what stands first goes without its name"


def test_it_names_every_setting_format_command_option_and_metric() -> None:
    wanted = [f"| `{each.name}` |" for each in fields(Settings)] + [f"`{name}(" for name in FORMATS]
    wanted += [f"tidelog pipeline {name}" for name in commands.commands]
    run = commands.commands["run"]
    wanted += [each.opts[0] for each in run.params if isinstance(each, click.Option)]
    metrics = re.findall(r"# TYPE tidelog_pipeline(\w+)", exposition("x", []))
    wanted += [f"`{name}`" for name in metrics if name != "_up"]
    assert [each for each in wanted if each not in PAGE] == []


def test_it_names_every_option_of_source_and_sink() -> None:
    told = re.findall(r"`([\w.]+)(?:\*)?`", PAGE)
    known = [*source_options._KNOWN, *sink_options._KNOWN]
    patterns = [name for name in known if name.startswith("ending")]
    missing = [name for name in known if name not in told and name not in patterns]
    assert missing == ["kafkaConsumer.pollTimeoutMs"], "which is there for programs that have it, and means little here"
