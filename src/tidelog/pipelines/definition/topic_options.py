"""What topics are read and written with, checked before Spark is there: by source and sink themselves."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.options import BOOTSTRAP, OptionError
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_THE_RUN: Final = {BOOTSTRAP: "any:1"}
_OF_THE_QUERY: Final = {**_OF_THE_RUN, "kafka.group.id": "any"}
"""What is added later."""
_CHOSEN: Final = {"columns", "includeheaders"}


def as_starting(given: Any) -> str:
    """From a place's name, or from Spark's JSON of offsets, which may also be a mapping."""
    try:
        text = given if isinstance(given, str) else json.dumps(dict(given))
    except (TypeError, ValueError):
        raise PipelineError(f"starting is earliest, latest, group or JSON of offsets, not {given!r}") from None
    with _told():
        SourceOptions.parse({**_OF_THE_QUERY, "subscribe": "any", "startingOffsets": text})
    return text


def check_stream(options: Mapping[str, str]) -> None:
    with _told():
        _source_options(options).for_stream()


def check_table(options: Mapping[str, str], *, letters: bool) -> None:
    """`letters`: it is also streamed, to find what cannot be read of it."""
    with _told():
        found = _source_options(options).for_batch()
        if letters:
            found.for_stream()


def _source_options(options: Mapping[str, str]) -> SourceOptions:
    for name in options:
        if name.lower() in _CHOSEN:
            raise OptionError(f"option {name} is chosen by the pipeline itself: `metadata` names what is wanted")
    return SourceOptions.parse({**_OF_THE_QUERY, **options})


def check_sink(options: Mapping[str, str]) -> None:
    with _told():
        SinkOptions.of({**_OF_THE_RUN, **options})


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with an option, by the name that it has in a pipeline if it has one."""
    try:
        yield
    except OptionError as error:
        raise PipelineError(re.sub(r"\boption startingOffsets\b", "starting", str(error))) from None
