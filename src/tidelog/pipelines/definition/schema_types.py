"""Types in schemas as SQL writes them, checked before Spark is there to read them. Pure.

    id long, at timestamp, lines array<struct<product: string, price: decimal(10, 2)>>

Only names are looked at: of types, and of columns. What else may be wrong is Spark's to tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidelog.pipelines.definition.errors import PipelineError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES: Final = frozenset(
    {
        "array",
        "bigint",
        "binary",
        "boolean",
        "byte",
        "char",
        "character",
        "date",
        "dec",
        "decimal",
        "double",
        "float",
        "geography",
        "geometry",
        "int",
        "integer",
        "interval",
        "long",
        "map",
        "numeric",
        "real",
        "short",
        "smallint",
        "string",
        "struct",
        "time",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "tinyint",
        "varchar",
        "variant",
        "void",
    }
)
_COLUMN: Final = re.compile(r"\s*(?P<name>`(?:[^`]|``)+`|\w+)\s*(?::\s*|\s+)(?P<type>.*)", re.DOTALL)
_WORD: Final = re.compile(r"\s*(?P<word>\w+)\s*(?P<rest>.*)", re.DOTALL)
_PIECE: Final = re.compile(
    r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|(?P<comment>--[^\n]*|/\*.*?\*/)|.", re.DOTALL
)
_DEPTH: Final = {"<": 1, "(": 1, ">": -1, ")": -1}


def check_columns(text: str) -> None:
    """PipelineError names the first type that there is not, or the name that two columns have."""
    seen: set[str] = set()
    for part in _parts(text):
        column = _COLUMN.fullmatch(part)
        if column is None:
            continue
        name = column["name"].strip("`")
        if name in seen:
            raise PipelineError(f"two columns are named {name!r}")
        seen.add(name)
        _check_type(column["type"], name)


def _check_type(text: str, column: str) -> None:
    found = _WORD.fullmatch(text)
    if found is None:
        return
    word = found["word"].lower()
    if word not in _TYPES:
        raise PipelineError(f"{column}: there is no type {found['word']!r}: {nearest(word, _TYPES)}")
    inner = _bracketed(found["rest"]) if found["rest"].startswith("<") else ""
    if word == "struct":
        check_columns(inner)
    else:
        for part in _parts(inner):
            _check_type(part, column)


def _parts(text: str) -> Iterator[str]:
    """What stands between commas that are in no brackets, quotes or comments."""
    part, depth = "", 0
    for piece in _pieces(text):
        if piece == "," and depth == 0:
            yield part
            part = ""
            continue
        depth += _DEPTH.get(piece, 0)
        part += piece
    yield part


def _bracketed(text: str) -> str:
    """What is in the bracket that it begins with."""
    inner, depth = "", 0
    for piece in _pieces(text):
        depth += _DEPTH.get(piece, 0)
        if depth == 0:
            break
        inner += piece
    return inner[1:]


def _pieces(text: str) -> Iterator[str]:
    """Characters, and what is quoted in one piece; comments are left out."""
    for piece in _PIECE.finditer(text):
        yield " " if piece["comment"] else piece[0]
