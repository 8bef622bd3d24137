"""The steps between: functions from DataFrames to a DataFrame, or SQL. A parameter's name says which rows it gets.

    @view
    def paid(orders):
        return orders.where("paid")

A view stays callable, so that a test can give it a DataFrame of its own.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.pipelines.definition.sinks import Sink
    from tidelog.pipelines.definition.sources import Watermark

SESSION = "spark"
"""The parameter that gets the session."""


@dataclass(frozen=True)
class View:
    inputs: tuple[str, ...]
    function: Callable[..., Any] | None = field(default=None, compare=False)
    sql: str | None = None
    watermark: Watermark | None = None
    sinks: tuple[Sink, ...] = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.function is None:
            raise PipelineError("a view written in SQL cannot be called")
        return self.function(*arguments, **keywords)


def view(function: Callable[..., Any]) -> View:
    """Decorates a function whose result other functions take by its name."""
    return as_view(function)


def as_view(given: Callable[..., Any] | View) -> View:
    if isinstance(given, View):
        return given
    if not inspect.isfunction(given):
        raise PipelineError(f"a function from DataFrames to a DataFrame is needed, not {given!r}")
    inputs = []
    for parameter in inspect.signature(given).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise PipelineError(f"{given.__name__}: its parameters are names of sources and views, not {parameter}")
        if parameter.default is parameter.empty:
            inputs.append(parameter.name)
    return View(tuple(inputs), function=given)
