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

_clusters: dict[ClientConfig, Cluster] = {}
_opening = threading.Lock()


def shared_cluster(config: ClientConfig) -> Cluster:
    """BrokersUnreachable when no broker answers."""
    with _opening:
        cluster = _clusters.get(config)
        if cluster is None:
            if len(_clusters) >= _CLUSTERS_MAX:
                run(_clusters.pop(next(iter(_clusters))).close())
            cluster = _clusters[config] = run(_started(config))
        return cluster


async def _started(config: ClientConfig) -> Cluster:
    cluster = Cluster(config.bootstrap_servers, config)
    await cluster.start()
    return cluster


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
