"""A coordinator's hold on the nodes of its groups below /consumers: taken, looked at, and let go.

Two brokers may believe for a moment that they coordinate a group. What keeps the earlier one from writing over the
later one's nodes is the version of the group's own node: whoever takes over sets it, which only the leader of the
group's partition can, and every write checks that it is unchanged. Ephemeral nodes belong to the broker's session.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.registry_tree import KINDS, Found, Plan, batches, changes
from tidelog.types import BrokerId
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import MultiError, NodeFormatError, NoNode, SessionExpired, ZnodeError
from tidelog.znodes.path_rules import child_of
from tidelog.znodes.store import Check, Create, Delete, SetData, Stat

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tidelog.coordinators.groups.registry_tree import Wanted
    from tidelog.znodes.store import Operation, ZnodeStore


class NotLeading(ZnodeError):  # noqa: N818 - named for what was found
    """The group's partition is led by another broker, as far as the store knows."""


class Contested(ZnodeError):  # noqa: N818 - named for what was found
    """A group's node was changed while it was claimed, or its partition's state if no group is named."""

    def __init__(self, cause: ZnodeError, group_id: str | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.group_id = group_id


@dataclass(slots=True)
class Claim:
    """A group that is ours, and what it has."""

    group_id: str
    version: int
    """Of the group's node: as long as it has it, nobody else has claimed the group."""
    session_id: int
    have: dict[str, Found] = field(default_factory=dict)
    shared: bool = False
    """Somebody else keeps nodes of his own below the group's."""

    @property
    def fence(self) -> Check:
        return Check(paths.group(self.group_id), self.version)

    def plan(self, want: dict[str, Wanted], *, whole: bool) -> Plan:
        return Plan(self.group_id, self.fence, changes(self.have, want, self.session_id, whole=whole))

    def farewell(self) -> Plan:
        """The group is no more: nothing of it stays."""
        path = paths.group(self.group_id)
        operations = changes(self.have, {}, self.session_id)
        operations.append(SetData(path, b"", self.version) if self.shared else Delete(path, self.version))
        return Plan(self.group_id, self.fence, operations)


class GroupClaims:
    def __init__(self, znodes: ZnodeStore, broker_id: int, topic: str) -> None:
        """`topic` is the one whose partitions' leaders coordinate groups."""
        self._znodes = znodes
        self._topic = topic
        self._mark = nodes.MirroredGroup(BrokerId(broker_id))

    async def take(self, partition: int, group_ids: Sequence[str], is_alive: Callable[[str], bool]) -> list[Claim]:
        """Claims groups of a partition. Those that are neither alive nor there any more are left out.

        Raises NotLeading, Contested and other ZnodeErrors.
        """
        session_id = self._znodes.session_id
        state_path = paths.partition_state(self._topic, partition)
        data, stat = await self._znodes.get(state_path)
        if nodes.PartitionState.decode(state_path, data).leader != self._mark.broker_id:
            raise NotLeading(f"{state_path}: another broker leads the partition")
        found = await self._znodes.get_many([paths.group(group_id) for group_id in group_ids])
        operations: list[Operation] = [Check(state_path, stat.version)]
        claimed: list[str] = []
        for group_id, node in zip(group_ids, found, strict=True):
            path = paths.group(group_id)
            if node is not None:
                operations.append(SetData(path, self._mark.encode(), node[1].version))
            elif is_alive(group_id):
                operations.append(Create(path, self._mark.encode()))
            else:
                continue
            claimed.append(group_id)
        if not claimed:
            return []
        try:
            results = await self._znodes.multi(operations)
        except MultiError as error:
            raise Contested(error.cause, claimed[error.index - 1] if error.index else None) from None
        claims = [
            Claim(group_id, result.version if isinstance(result, Stat) else 0, session_id)
            for group_id, result in zip(claimed, results[1:], strict=True)
        ]
        # What was just created has nothing below it.
        await asyncio.gather(*(self._look(claim) for claim in claims if claim.version))
        if self._znodes.session_id != session_id:
            raise SessionExpired("a new session began meanwhile")
        return claims

    async def orphans(self, is_ours: Callable[[str], bool]) -> list[str]:
        """Groups that a coordinator once mirrored, among those that `is_ours` asks for."""
        named = [(name, paths.group_named(name)) for name in await self._znodes.children(paths.CONSUMERS)]
        group_ids = [group_id for _name, group_id in named if group_id is not None and is_ours(group_id)]
        found = await self._znodes.get_many([paths.group(group_id) for group_id in group_ids])
        return [
            group_id
            for group_id, node in zip(group_ids, found, strict=True)
            if node is not None and self._marked_by(group_id, node[0]) is not None
        ]

    async def release(self, group_id: str) -> None:
        """Takes our ephemeral nodes away, unless another coordinator has the group by now. Raises ZnodeError."""
        session_id = self._znodes.session_id
        try:
            data, stat = await self._znodes.get(paths.group(group_id))
            if self._marked_by(group_id, data) != self._mark.broker_id:
                return
            claim = Claim(group_id, stat.version, session_id)
            await self._look(claim)
        except NoNode:
            return
        ours: list[Operation] = [Delete(path) for path, node in claim.have.items() if node.owner == session_id]
        for batch in batches([Plan(group_id, claim.fence, ours)]):
            await self._znodes.multi(batch.operations)

    def _marked_by(self, group_id: str, data: bytes) -> BrokerId | None:
        """The broker that mirrored the group; None if it is one of somebody who registers by himself."""
        try:
            return nodes.MirroredGroup.decode(paths.group(group_id), data).broker_id
        except NodeFormatError:
            return None

    async def _look(self, claim: Claim) -> None:
        """Reads what the group has."""
        root = paths.group(claim.group_id)
        kinds = await self._znodes.children(root)
        claim.shared = any(kind not in KINDS for kind in kinds)
        found = [child_of(root, kind) for kind in kinds if kind in KINDS]
        below = await self._children(found)
        found += below
        topics = [path for path in below if not path.startswith(paths.group_members(claim.group_id))]
        found += await self._children(topics)
        for path, node in zip(found, await self._znodes.get_many(found), strict=True):
            if node is not None:
                claim.have[path] = Found(node[0], node[1].ephemeral_owner)

    async def _children(self, parents: Collection[str]) -> list[str]:
        listed = await asyncio.gather(*(self._names(path) for path in parents))
        return [child_of(path, name) for path, names in zip(parents, listed, strict=True) for name in names]

    async def _names(self, path: str) -> list[str]:
        try:
            return await self._znodes.children(path)
        except NoNode:
            return []  # an ephemeral one whose session has ended meanwhile
