"""Looks at the brokers' nodes in ZooKeeper from outside: when a session's node vanished, when states were written.

All moments are of this machine's wall clock, which ZooKeeper's own time stamps use too.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kazoo.client import KazooClient  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from types import TracebackType

_OWN_SESSION_S = 60.0


class Vanishing:
    """A node that is there now."""

    def __init__(self) -> None:
        self._gone = threading.Event()
        self._at_s = 0.0

    def note(self, event: Any) -> None:
        if event.type == "DELETED":
            self._at_s = time.time()
            self._gone.set()

    def wait(self, within_s: float) -> float:
        """When it vanished."""
        if not self._gone.wait(within_s):
            raise TimeoutError(f"the node was still there after {within_s:g} s")
        return self._at_s


class Written(NamedTuple):
    at_s: float
    leader: int


class RegistryWatch:
    def __init__(self, connect: str) -> None:
        self._client = KazooClient(hosts=connect, timeout=_OWN_SESSION_S)

    def __enter__(self) -> Self:
        self._client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()

    def vanishing(self, path: str) -> Vanishing:
        vanishing = Vanishing()
        if self._client.exists(path, watch=vanishing.note) is None:
            raise RuntimeError(f"{path} is not there")
        return vanishing

    def states(self, topic: str, partitions: int) -> list[Written]:
        """The leaders of a topic's partitions, and when each was written."""
        asked = [
            self._client.get_async(f"/brokers/topics/{topic}/partitions/{number}/state") for number in range(partitions)
        ]
        found = (each.get(timeout=_OWN_SESSION_S) for each in asked)
        return [Written(stat.last_modified, json.loads(data)["leader"]) for data, stat in found]
