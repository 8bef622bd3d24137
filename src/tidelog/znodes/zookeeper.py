"""The coordination store of a cluster: an Apache ZooKeeper ensemble.

    store = await open_zookeeper("a:2181,b:2181,c:2181/logs", session_timeout_ms=18_000, connection_timeout_ms=18_000)

kazoo is loaded when the first one is opened: a broker that is alone never needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.znodes.connect_string import parse_connect_string
from tidelog.znodes.errors import BadArguments

if TYPE_CHECKING:
    from tidelog.znodes.store import ZnodeStore

REQUESTS_IN_FLIGHT_MAX = 10


async def open_zookeeper(
    connect: str,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    digest: tuple[str, str] | None = None,
    protect: bool = False,
    requests_in_flight_max: int = REQUESTS_IN_FLIGHT_MAX,
) -> ZnodeStore:
    """Begins a session. The node at the end of `connect` is created if it is missing.

    `digest` is the user and password to authenticate with. With `protect`, nodes are created so that only who
    authenticates so can change them (see `access`). `session_timeout_ms` is what we ask for: the servers have limits.

    Raises BadArguments, and StoreUnavailable when no server lets a session begin within `connection_timeout_ms`.
    """
    ensemble = parse_connect_string(connect)
    if protect and digest is None:
        raise BadArguments(
            "zookeeper.set.acl=true needs tidelog.zookeeper.digest: nodes are protected by their creator"
        )
    if digest is not None and (not digest[0] or ":" in digest[0]):
        raise BadArguments("tidelog.zookeeper.digest must be user:password")
    from tidelog.znodes.zookeeper_session import ZooKeeperSession  # noqa: PLC0415 - loads kazoo

    return await ZooKeeperSession.open(
        ensemble,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=connection_timeout_ms,
        digest=digest,
        protect=protect,
        requests_in_flight_max=requests_in_flight_max,
    )
