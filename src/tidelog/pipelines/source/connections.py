"""The connections of this process to clusters, kept for as long as it lives: Spark uses its Python processes again.

They save time only. Whoever finds none opens them.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from typing import Any, TypeVar

    from tidelog.client.config import ClientConfig

    T = TypeVar("T")

_CLUSTERS_MAX = 16

_clusters: dict[ClientConfig, OpenCluster] = {}
_opening = threading.Lock()


class OpenCluster:
    """Connections of the caller's own. They are closed with the process, if nobody does it before."""

    def __init__(self, config: ClientConfig) -> None:
        """BrokersUnreachable when no broker answers."""
        self.cluster = run(_started(config))
        LoopThread.shared().keep(self)

    def close(self) -> None:
        LoopThread.shared().forget(self)
        run(self.cluster.close())


async def _started(config: ClientConfig) -> Cluster:
    cluster = Cluster(config.bootstrap_servers, config)
    await cluster.start()
    return cluster


def shared_cluster(config: ClientConfig) -> Cluster:
    """For use at once: it is closed when many others have been asked for."""
    with _opening:
        kept = _clusters.pop(config, None) or OpenCluster(config)
        _clusters[config] = kept  # the last of them, as it was used last
        if len(_clusters) > _CLUSTERS_MAX:
            _clusters.pop(next(iter(_clusters))).close()
        return kept.cluster


def run(work: Coroutine[Any, Any, T]) -> T:
    return LoopThread.shared().run(work)


def start(work: Coroutine[Any, Any, T]) -> Future[T]:
    return LoopThread.shared().start(work)


def _begin_anew() -> None:
    """A forked child cannot use its parent's connections."""
    global _opening
    _clusters.clear()
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)
