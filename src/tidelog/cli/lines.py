"""Reads lines from a file or from standard input without stopping the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LINE_BYTES_MAX = 64 << 20

_CHUNK_BYTES = 256 << 10
_CHUNKS_AHEAD = 4


class LineSplitter:
    """Cuts a byte stream into lines, however it is chopped up. Decides only; reads nothing."""

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = b""
        self._line = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._line += len(lines)
        if len(self._rest) > self._line_bytes_max:
            raise click.ClickException(f"line {self._line + 1} is longer than {self._line_bytes_max} bytes")
        return lines

    def finish(self) -> list[bytes]:
        """What follows the last line end, if anything."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


async def read_lines(fd: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as many at a time as are there: typed ones at once, a file's in large portions."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(_CHUNKS_AHEAD)
    # A daemon of our own: an executor's thread that waits for the keyboard would keep the program from ending.
    threading.Thread(target=_pump, args=(fd, loop, chunks), name="tidelog input", daemon=True).start()
    splitter = LineSplitter()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise click.ClickException(f"the input cannot be read: {chunk.strerror}")
        lines = splitter.feed(chunk)
        if lines:
            yield lines
    rest = splitter.finish()
    if rest:
        yield rest


def _pump(fd: int, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes | OSError]) -> None:
    while True:
        chunk: bytes | OSError
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except OSError as error:
            chunk = error
        put = chunks.put(chunk)
        try:
            asyncio.run_coroutine_threadsafe(put, loop).result()
        except (RuntimeError, asyncio.CancelledError):  # the loop has ended, and nobody reads any more
            put.close()
            return
        if not chunk or isinstance(chunk, OSError):
            return
