"""What a query's checkpoint says about a batch. Read on the driver, wherever pyarrow can read; never written."""

from __future__ import annotations

import logging
import os
import re
import socket
from typing import TYPE_CHECKING, Final

from tidelog.pipelines.sink.decisions import SourceOffsets

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_FILE_BYTES_MAX: Final = 64 << 20
_HEADER_LINES: Final = 2
"""The format's version, and what else Spark notes: the sources' offsets come after."""


def source_offsets(checkpoint: str, batch: int) -> SourceOffsets | None:
    """What the batch is made of; None where the checkpoint cannot be read from here."""
    import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - only with a checkpoint

    try:
        filesystem, path = _located(checkpoint)
        with filesystem.open_input_stream(f"{path}/offsets/{batch}") as file:
            text = file.read(_FILE_BYTES_MAX).decode()
    except (OSError, ValueError, pa.ArrowException) as error:
        log.warning(
            "the source offsets of batch %d cannot be read from checkpoint %s (%s): whether a repeated batch has the "
            "same input is not checked",
            batch,
            checkpoint,
            error,
        )
        return None
    return offsets_in(text)


def offsets_in(text: str) -> SourceOffsets | None:
    """Of a file as Spark writes it; None if it is none."""
    lines = text.splitlines()
    if len(lines) <= _HEADER_LINES or not re.fullmatch(r"v\d+", lines[0]):
        return None
    return SourceOffsets.of(lines[_HEADER_LINES:])


def place_of(checkpoint: str) -> str:
    """One spelling for what Spark takes to be the same place, and another for other machines' directories."""
    place = _normal(checkpoint)
    return place if _SCHEME.match(place) else f"file://{socket.gethostname()}{os.path.abspath(place)}"  # noqa: PTH100 - same on every system


def _normal(checkpoint: str) -> str:
    return re.sub(r"^file:/+", "/", checkpoint.strip().rstrip("/")) or "/"


def _located(checkpoint: str) -> tuple[FileSystem, str]:
    from pyarrow import fs  # noqa: PLC0415 - same

    place = _normal(checkpoint)
    if _SCHEME.match(place):
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(place)
        return found
    return fs.LocalFileSystem(), place
