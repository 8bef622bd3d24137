"""Pipelines written as a Python module: whatever sources, views and settings it has at its top, by their names."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import TYPE_CHECKING, Any

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.definition.pipeline import assemble
from tidelog.pipelines.definition.settings import Settings
from tidelog.pipelines.definition.sources import Source
from tidelog.pipelines.definition.views import View

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tidelog.pipelines.definition.pipeline import Pipeline


def from_module(file: Path) -> Pipeline:
    names = vars(_imported(file))
    settings = {name: each for name, each in names.items() if isinstance(each, Settings)}
    if len(settings) > 1:
        raise PipelineError(f"there are several settings: {', '.join(settings)}")
    return assemble(
        file,
        next(iter(settings.values()), Settings()),
        _named(names, Source),
        _named(names, View),
    )


def _named(names: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The first name of each: a module may give a thing a second one."""
    found: dict[int, tuple[str, Any]] = {}
    for name, each in names.items():
        if isinstance(each, kind):
            found.setdefault(id(each), (name, each))
    return dict(found.values())


def _imported(file: Path) -> ModuleType:
    """Under its own name, beside its neighbours, so that what it imports is found and functions can be pickled."""
    directory = str(file.absolute().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    name = f"tidelog_pipeline_{file.stem}" if file.stem in sys.modules or not file.stem.isidentifier() else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PipelineError as error:
        raise PipelineError(f"{_where(error, file)}{error}") from None
    except SyntaxError as error:
        raise PipelineError(f"{file}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        raise PipelineError(f"{_where(error, file)}{type(error).__name__}: {error}") from error
    return module


def _where(error: BaseException, file: Path) -> str:
    """The line of the user's file, not of ours."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"line {lines[-1]}: " if lines else ""
