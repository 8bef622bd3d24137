"""Reads a pipeline from its file, whichever form it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.definition.python_form import from_module
from tidelog.pipelines.definition.yaml_form import from_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.pipelines.definition.pipeline import Pipeline


def load(file: Path) -> Pipeline:
    """PipelineError names the file and says what is wrong."""
    if not file.is_file():
        raise PipelineError(f"there is no file {file}")
    try:
        if file.suffix == ".py":
            return from_module(file)
        if file.suffix in {".yaml", ".yml"}:
            return from_yaml(file.read_text(encoding="utf-8"), file)
    except PipelineError as error:
        raise PipelineError(f"{file}: {error}") from error.__cause__
    except UnicodeDecodeError:
        raise PipelineError(f"{file}: this is not UTF-8") from None
    raise PipelineError(f"{file}: a pipeline is a Python module (.py) or YAML (.yaml)")
