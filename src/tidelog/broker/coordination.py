"""The broker's place in the cluster: its id, its registration, and who is controller.

With embedded coordination this broker is the whole cluster and always its controller.
"""

from __future__ import annotations

import base64
import secrets
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.security.broker_proof import SECRET_BYTES
from tidelog.types import BrokerId
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import NodeExists, NoNode

if TYPE_CHECKING:
    from tidelog.config.listeners import ListenerSet
    from tidelog.znodes.store import ZnodeStore


async def cluster_id(znodes: ZnodeStore) -> str:
    """The cluster's id, made when its first broker starts for the first time."""
    made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return nodes.decode_cluster_id(
        paths.CLUSTER_ID, await _made_once(znodes, paths.CLUSTER_ID, nodes.encode_cluster_id(made))
    )


async def cluster_secret(znodes: ZnodeStore) -> bytes:
    """What brokers know each other by. It is only as secret as the znodes are: see `zookeeper.set.acl`."""
    return await _made_once(znodes, paths.CLUSTER_SECRET, secrets.token_bytes(SECRET_BYTES))


async def _made_once(znodes: ZnodeStore, path: str, data: bytes) -> bytes:
    """The node's data, which is `data` if nobody was first."""
    try:
        return (await znodes.get(path))[0]
    except NoNode:
        with suppress(NodeExists):
            await znodes.create(path, data, make_parents=True)
        return (await znodes.get(path))[0]


async def become_controller(znodes: ZnodeStore, broker_id: int, now_ms: int) -> int:
    """Takes the controllership and gives its epoch, which rises with every reign."""
    try:
        data, stat = await znodes.get(paths.CONTROLLER_EPOCH)
    except NoNode:
        epoch = 1
        await znodes.create(paths.CONTROLLER_EPOCH, nodes.encode_integer(epoch))
    else:
        epoch = nodes.decode_integer(paths.CONTROLLER_EPOCH, data) + 1
        await znodes.set(paths.CONTROLLER_EPOCH, nodes.encode_integer(epoch), stat.version)
    await znodes.create(paths.CONTROLLER, nodes.ControllerClaim(BrokerId(broker_id), now_ms).encode(), ephemeral=True)
    return epoch


async def register(znodes: ZnodeStore, broker_id: int, listeners: ListenerSet, rack: str | None, now_ms: int) -> int:
    """Makes the broker known for as long as its session lives; gives the registration's epoch."""
    registration = nodes.BrokerRegistration(listeners.advertised, now_ms, rack)
    await znodes.create(paths.broker(broker_id), registration.encode(), ephemeral=True)
    stat = await znodes.exists(paths.broker(broker_id))
    return stat.czxid if stat else -1


async def prepare_tree(znodes: ZnodeStore) -> None:
    """The nodes whose children are listed must be there."""
    for path in paths.PERSISTENT:
        if not await znodes.exists(path):
            await znodes.create(path, make_parents=True)
