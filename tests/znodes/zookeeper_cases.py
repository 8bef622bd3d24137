"""What tests on ZooKeeper share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.znodes.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.znodes.store import ZnodeStore

WAIT_SECONDS = 120


class Told:
    """A watch or listener that remembers what it was told."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[object] = asyncio.Queue()

    def __call__(self, news: object) -> None:
        self.queue.put_nowait(news)

    async def next(self) -> object:
        return await asyncio.wait_for(self.queue.get(), WAIT_SECONDS)

    @property
    def idle(self) -> bool:
        return self.queue.empty()


async def connect(connect_string: str, **options: Any) -> ZnodeStore:
    """A session that outlasts whatever a slow machine does to the servers, unless the test wants it shorter."""
    timeouts = {"session_timeout_ms": 120_000, "connection_timeout_ms": 60_000}
    return await open_zookeeper(connect_string, **{**timeouts, **options})


def with_kazoo(connect_string: str, work: Callable[[Any], None]) -> None:
    """Does some work through a client that is not ours."""
    from kazoo.client import KazooClient  # type: ignore[import-untyped]

    client = KazooClient(connect_string)
    client.start()
    try:
        work(client)
    finally:
        client.stop()
        client.close()


async def end_session_elsewhere(session: ZnodeStore) -> None:
    """Closes it by another connection that knows its password: to its owner this looks like an expiry."""
    client = session._link._client  # type: ignore[attr-defined]
    hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)

    def take_over_and_close() -> None:
        from kazoo.client import KazooClient

        other = KazooClient(hosts, client_id=(client._session_id, client._session_passwd))
        other.start()
        other.stop()
        other.close()

    await asyncio.to_thread(take_over_and_close)
