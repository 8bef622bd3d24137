"""Keeps a place to one process: a file that whoever uses the place holds, with its id in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Lock:
    """It ends with the process that holds it, however that ends."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def holder(self) -> int | None:
        """The process that holds it now, if one does; 0 where that is not known."""
        try:
            lock = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.read(lock, 32).decode(errors="replace").strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(lock)
        return None

    @contextlib.contextmanager
    def held(self, pipeline: str, otherwise: str) -> Iterator[None]:
        """`otherwise` says what to do where the place cannot be written."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PipelineError(f"{self.file.parent} cannot be written ({error.strerror}): {otherwise}") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
                raise PipelineError(
                    f"pipeline {pipeline} runs already, in process {pid}: stop that one first"
                ) from None
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            yield
            os.ftruncate(lock, 0)
        finally:
            os.close(lock)
