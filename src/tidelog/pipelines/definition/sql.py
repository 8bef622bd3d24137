"""Which sources and views a piece of SQL reads. An estimate that Spark has the last word on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.definition.errors import PipelineError, nearest
from tidelog.pipelines.definition.relations import relations

if TYPE_CHECKING:
    from collections.abc import Iterable


def inputs_of(sql: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """The names in `known` that it reads, in order. PipelineError if it reads from one that is not known."""
    names = {name.lower(): name for name in known}
    found: dict[str, None] = {}
    for read in relations(sql):
        if read.lower() not in names:
            raise PipelineError(f"{what}: there is no source or view {read!r}: {nearest(read, names.values())}")
        found[names[read.lower()]] = None
    if not found:
        raise PipelineError(f"{what}: it reads none of the sources and views: {', '.join(sorted(names.values()))}")
    return tuple(found)
