"""What a cluster agrees on before anything else: its id, its secret, and the nodes whose children are listed."""

from __future__ import annotations

import base64
import secrets
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.security.broker_proof import SECRET_BYTES
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import NodeExists, NoNode

if TYPE_CHECKING:
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


async def new_broker_id(znodes: ZnodeStore, reserved_max: int) -> int:
    """A number that no broker ever had: above those that are given by hand."""
    return reserved_max + (await znodes.set(paths.BROKER_SEQUENCE, b"")).version


async def _made_once(znodes: ZnodeStore, path: str, data: bytes) -> bytes:
    """The node's data, which is `data` if nobody was first."""
    try:
        return (await znodes.get(path))[0]
    except NoNode:
        with suppress(NodeExists):
            await znodes.create(path, data, make_parents=True)
        return (await znodes.get(path))[0]


async def prepare_tree(znodes: ZnodeStore) -> None:
    """The nodes whose children are listed must be there."""
    for path in paths.PERSISTENT:
        if not await znodes.exists(path):
            with suppress(NodeExists):  # brokers that start at once make it at once
                await znodes.create(path, make_parents=True)
