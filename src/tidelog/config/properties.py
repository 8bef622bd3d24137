"""The .properties format of Java, which Kafka's files are written in: text in, keys and values out. Reads no file.

Comments begin with # or !. Key and value are parted by =, : or white space. A backslash at the end of a line joins
the next one to it; elsewhere it begins an escape (\\t \\n \\r \\f, \\uXXXX, or the character itself).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.config.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANKS = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.|\Z)", re.DOTALL)
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file; of a repeated key the last value. Raises ConfigError on a bad escape."""
    found: dict[str, str] = {}
    problems = []
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        try:
            found[_unescape(key[0])] = _unescape(line[separator.end() :])
        except ValueError as error:
            problems.append(f"Line {number}: {error}")
    if problems:
        raise ConfigError(problems)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, continuations joined, each with the number of its first line."""
    pending = ""
    first_number = 0
    for number, raw in enumerate(_LINE_ENDS.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if not first_number and (not line or line[0] in "#!"):
            continue
        first_number = first_number or number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield first_number, pending + line
        pending, first_number = "", 0
    if first_number and pending:
        yield first_number, pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code == "u":
        raise ValueError("\\u must be followed by four hexadecimal digits.")
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _NAMED_ESCAPES.get(code, code)
