"""Which sources and views a piece of SQL reads. An estimate that Spark has the last word on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidelog.pipelines.definition.errors import PipelineError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOISE: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_READ: Final = re.compile(r"\b(?:from|join)\s+(?:stream\s*\(\s*)?(`?[A-Za-z_]\w*`?)(\s*[.(])?", re.IGNORECASE)
_DEFINED: Final = re.compile(r"(?:\bwith|,)\s+(?:recursive\s+)?([A-Za-z_]\w*)\s+as\s*\(", re.IGNORECASE)
_NOT_TABLES: Final = {"select", "values", "lateral", "unnest"}


def inputs_of(sql: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """The names in `known` that it reads, in order. PipelineError if it reads from one that is not known."""
    bare = _NOISE.sub(" ", sql)
    names = {name.lower(): name for name in known}
    defined = {match.lower() for match in _DEFINED.findall(bare)}
    for match in _READ.finditer(bare):
        read, more = match[1].strip("`").lower(), match[2]
        # EXTRACT(day FROM at) reads no table; neither does range(10). A dot leads into a catalog, which Spark knows.
        if more or read in defined | _NOT_TABLES or read in names or _inside_function(bare, match.start()):
            continue
        raise PipelineError(f"{what}: there is no source or view {match[1]!r}: {nearest(match[1], names.values())}")
    found = dict.fromkeys(names[word.lower()] for word in _NAME.findall(bare) if word.lower() in names)
    if not found:
        raise PipelineError(f"{what}: it reads none of the sources and views: {', '.join(sorted(names.values()))}")
    return tuple(found)


def _inside_function(sql: str, at: int) -> bool:
    """Whether FROM stands in the brackets of extract, trim, substring, overlay or position, which have their own."""
    depth = 0
    for place in range(at - 1, -1, -1):
        if sql[place] == ")":
            depth += 1
        elif sql[place] == "(":
            if depth == 0:
                before = re.search(r"(\w+)\s*$", sql[:place])
                return before is not None and before[1].lower() in {"extract", "trim", "substring", "substr", "overlay"}
            depth -= 1
    return False
