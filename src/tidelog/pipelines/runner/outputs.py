"""What Spark's processes print: most of it is noise, but warnings of source and sink are for the user's eyes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES_MAX: Final = 1 << 20
_WARNING: Final = re.compile(r"^\S+:\d+: (?P<kind>[A-Z]\w*): (?P<told>.+)$")
_OF_SOURCE: Final = re.compile(r"^DATA LOSS: .+$")
_SHOWN: Final = re.compile(r"^(OutputRepeats|RuntimeWarning|UserWarning)$")


class Output:
    """Follows the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""

    def warnings(self) -> list[str]:
        """Those that came since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read(_READ_BYTES_MAX)
        except OSError:
            return []
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        return warnings_in([line.decode(errors="replace") for line in lines])


def warnings_in(lines: list[str]) -> list[str]:
    """As Python prints them: file, line, kind and message; or what the source says of records that it did not find."""
    told: list[str] = []
    for line in lines:
        warning = _WARNING.match(line)
        if warning is not None and _SHOWN.match(warning["kind"]):
            told.append(warning["told"])
        elif _OF_SOURCE.match(line):
            told.append(line)
    return told
