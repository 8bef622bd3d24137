"""Whether a log can be used, and what a failing file system looks like to whoever asked for something."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.storage.walk import Damage

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_log = logging.getLogger(__name__)


class Health:
    """Well until `fail`: from then on every `check` refuses. `during` turns I/O failures into refusals."""

    __slots__ = ("_name", "_on_failure", "closed", "failure")

    def __init__(self, name: str, on_failure: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._on_failure = on_failure
        self.failure: str | None = None
        self.closed = False

    def check(self) -> None:
        if self.failure is not None:
            advice = "" if self.closed else ": repair the disk and restart the broker"
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._name}: {self.failure}{advice}")

    def fail(self, reason: str) -> None:
        """Nobody knows what is on the disk any more: only a restart, which reads it, can tell."""
        if self.failure is None:
            self.failure = reason
            _log.error("%s is taken out of service: %s", self._name, reason)
            self._on_failure()

    def close(self) -> None:
        """Nothing is wrong, but there is nothing to be had here any more."""
        self.closed = True
        self.failure = self.failure or "the log is closed"

    def refusal(self, action: str, error: OSError | Damage) -> BrokerError:
        """What to raise when the file system failed, but the log is still what it was."""
        _log.error("%s: could not %s: %s", self._name, action, error)
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._name}: could not {action}: {error}")

    def during(self, action: str, *, fatal: bool = False) -> During:
        """`fatal` if half of the action is worse than none of it."""
        return During(self, action, fatal=fatal)


class During:
    """`with health.during("roll"):` OSError and Damage come out as KAFKA_STORAGE_ERROR."""

    __slots__ = ("_action", "_fatal", "_health")

    def __init__(self, health: Health, action: str, *, fatal: bool) -> None:
        self._health = health
        self._action = action
        self._fatal = fatal

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, OSError | Damage):
            if self._fatal:
                self._health.fail(f"could not {self._action}: {error}")
            raise self._health.refusal(self._action, error) from error
