"""Becoming the controller: whoever creates `/controller` first is, for as long as its session lives.

The epoch rises in the same transaction, and its version is the fence: every later write of this controller checks it,
so that one that has been replaced without knowing it can write nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.types import BrokerId
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import BadVersion, MultiError, NodeExists, NoNode
from tidelog.znodes.store import Check, Create, Delete, SetData

if TYPE_CHECKING:
    from tidelog.znodes.store import Watch, ZnodeStore

ATTEMPTS_MAX = 20


class Claim(NamedTuple):
    epoch: int
    fence: Check


async def claim(znodes: ZnodeStore, broker_id: int, now_ms: int) -> Claim | None:
    """Takes the controllership if it is free, or goes on with it if this session has it. None: another one has it."""
    for _ in range(ATTEMPTS_MAX):
        epoch, version = await _epoch(znodes)
        holder = await znodes.exists(paths.CONTROLLER)
        if holder is not None:
            # Epoch and holder only change together, so this epoch is ours; unless the holder has changed in between,
            # in which case the fence is an older one and nothing can be written.
            ours = holder.ephemeral_owner == znodes.session_id
            return Claim(epoch, Check(paths.CONTROLLER_EPOCH, version)) if ours else None
        taken = nodes.ControllerClaim(BrokerId(broker_id), now_ms)
        try:
            await znodes.multi(
                [
                    SetData(paths.CONTROLLER_EPOCH, nodes.encode_integer(epoch + 1), version),
                    Create(paths.CONTROLLER, taken.encode(), ephemeral=True),
                ]
            )
        except MultiError as error:
            if not isinstance(error.cause, (BadVersion, NodeExists)):
                raise
            continue  # another one was faster: see whether it is still there
        return Claim(epoch + 1, Check(paths.CONTROLLER_EPOCH, version + 1))
    return None


async def _epoch(znodes: ZnodeStore) -> tuple[int, int]:
    while True:
        try:
            data, stat = await znodes.get(paths.CONTROLLER_EPOCH)
        except NoNode:
            try:
                await znodes.create(paths.CONTROLLER_EPOCH, nodes.encode_integer(0))
            except NodeExists:
                continue
        else:
            return nodes.decode_integer(paths.CONTROLLER_EPOCH, data), stat.version


async def watch_holder(znodes: ZnodeStore, watch: Watch) -> int | None:
    """Which broker is the controller; None if none is. The watch is told when that may have changed."""
    stat = await znodes.exists(paths.CONTROLLER, watch=watch)
    if stat is None:
        return None
    try:
        data, _stat = await znodes.get(paths.CONTROLLER)
    except NoNode:
        return None
    return nodes.ControllerClaim.decode(paths.CONTROLLER, data).broker_id


async def release(znodes: ZnodeStore, claimed: Claim) -> None:
    """Gives the controllership up, so that another broker takes it at once. Nothing happens if it is lost already."""
    try:
        await znodes.multi([claimed.fence, Delete(paths.CONTROLLER)])
    except MultiError:
        return
