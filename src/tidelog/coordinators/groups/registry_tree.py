"""Which znodes below /consumers a group should have, and which operations lead there from those it has.

    /consumers/G                what claims the group for its coordinator; not part of what is compared here
    /consumers/G/ids/M          ephemeral: a member and what it subscribes to
    /consumers/G/owners/T/P     ephemeral: the member that reads the partition
    /consumers/G/offsets/T/P    the committed offset

A group is shown whole or not at all: strangers name groups, members and topics, and say who has which partition, so
there are bounds to what is taken from them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tidelog.znodes import nodes, paths
from tidelog.znodes.path_rules import PATH_MAX_CHARS
from tidelog.znodes.store import Check, Create, Delete, Operation, SetData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.groups.registry import GroupView, Member, Slot

NODES_PER_GROUP_MAX = 20_000
NODE_BYTES_MAX = 256 << 10
OPERATIONS_PER_MULTI = 200
MULTI_BYTES_MAX = 512 << 10

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_PATH_CHARS_MAX = len("/offsets/") + 249 + len("/2147483647")
_OPERATION_OVERHEAD_BYTES = 128

KINDS = ("ids", "offsets", "owners")
"""What a group's node has below it. Anything else is somebody else's."""


class Unfit(Exception):  # noqa: N818 - it is the group that is
    """The group cannot be shown; the message says why."""


class Wanted(NamedTuple):
    data: bytes
    ephemeral: bool = False


class Found(NamedTuple):
    data: bytes
    owner: int = 0
    """The session whose end removes the node; 0 if it stays."""


def wanted(view: GroupView) -> dict[str, Wanted]:
    """All nodes below the group's own. Raises Unfit."""
    group_id = view.group_id
    check_group(group_id)
    count = len(view.members) + len(view.owners) + len(view.offsets)
    if count > NODES_PER_GROUP_MAX:
        raise Unfit(f"it would have {count} nodes, and {NODES_PER_GROUP_MAX} is the most")
    tree = {
        path: Wanted(b"")
        for path in (paths.group_members(group_id), paths.group_owners(group_id), paths.group_offsets(group_id))
    }
    for member_id, member in view.members.items():
        path = paths.group_member(group_id, member_id)
        if not member_id or len(path) > PATH_MAX_CHARS:
            raise Unfit(f"the id of one of its members has {len(member_id)} characters")
        tree[path] = Wanted(_registration(member), ephemeral=True)
    for slot, member_id in view.owners.items():
        if _is_partition(slot):
            tree[f"{paths.group_owners(group_id)}/{slot[0]}"] = Wanted(b"")
            tree[paths.partition_owner(group_id, *slot)] = Wanted(nodes.encode_owner(member_id), ephemeral=True)
    tree.update(wanted_offsets(group_id, view.offsets))
    largest = max(len(node.data) for node in tree.values())
    if largest > NODE_BYTES_MAX:
        raise Unfit(f"what one of its members subscribes to takes {largest} bytes, and {NODE_BYTES_MAX} is the most")
    return tree


def wanted_offsets(group_id: str, offsets: Mapping[Slot, int]) -> dict[str, Wanted]:
    """The nodes of some committed offsets, with those above them."""
    tree: dict[str, Wanted] = {}
    for slot, offset in offsets.items():
        if _is_partition(slot):
            tree[f"{paths.group_offsets(group_id)}/{slot[0]}"] = Wanted(b"")
            tree[paths.group_offset(group_id, *slot)] = Wanted(nodes.encode_integer(offset))
    return tree


def check_group(group_id: str) -> None:
    """Raises Unfit if the group cannot even have a node."""
    if not group_id:
        raise Unfit("its id is empty")
    if len(paths.group(group_id)) + _PARTITION_PATH_CHARS_MAX > PATH_MAX_CHARS:
        raise Unfit(f"its id has {len(group_id)} characters")


def _registration(member: Member) -> bytes:
    topics = tuple(sorted(member.topics))
    if not member.pattern:
        return nodes.GroupMember(topics, member.since_ms).encode()
    # The format has names or one pattern: names beside a pattern become part of it.
    pattern = "|".join([*(topic.replace(".", r"\.") for topic in topics), member.pattern])
    return nodes.GroupMember((), member.since_ms, pattern).encode()


def _is_partition(slot: Slot) -> bool:
    """A classic leader assigns what it likes, and a name must not lead elsewhere in the tree."""
    topic, number = slot
    return number >= 0 and _TOPIC_NAME.fullmatch(topic) is not None and topic not in {".", ".."}


# --- from here to there ---


def changes(
    have: Mapping[str, Found], want: Mapping[str, Wanted], session_id: int, *, whole: bool = True
) -> list[Operation]:
    """What makes `have` into `want`, in an order that works. Unless `whole`, what is not wanted stays.

    An ephemeral node that another session made must be ours: it is deleted and made anew.
    """
    operations: list[Operation] = []
    if whole:
        operations += [Delete(path) for path in sorted(have.keys() - want.keys(), reverse=True)]
    for path in sorted(want):  # parents come before their children
        node, found = want[path], have.get(path)
        if found is not None and found.owner == (session_id if node.ephemeral else 0):
            if found.data != node.data:
                operations.append(SetData(path, node.data))
            continue
        if found is not None:
            operations.append(Delete(path))
        operations.append(Create(path, node.data, ephemeral=node.ephemeral))
    return operations


def done(have: dict[str, Found], operations: Iterable[Operation], session_id: int) -> None:
    """What a group has once the operations have happened."""
    for operation in operations:
        match operation:
            case Create():
                have[operation.path] = Found(operation.data, session_id if operation.ephemeral else 0)
            case SetData():
                have[operation.path] = have[operation.path]._replace(data=operation.data)
            case Delete():
                have.pop(operation.path, None)


class Plan(NamedTuple):
    """What is to be done to one group, as long as nobody else claims it."""

    group_id: str
    fence: Check
    operations: list[Operation]


class Batch(NamedTuple):
    """One multi, and what it does to each of its groups."""

    parts: list[Plan]

    @property
    def operations(self) -> list[Operation]:
        return [operation for part in self.parts for operation in (part.fence, *part.operations)]

    def group_at(self, index: int) -> str:
        """The group that the operation at `index` is for."""
        for part in self.parts:
            index -= 1 + len(part.operations)
            if index < 0:
                return part.group_id
        raise IndexError(index)


def batches(plans: Iterable[Plan]) -> list[Batch]:
    """Packs plans into multis of a bounded size. Each part of a group that needs several has its fence."""
    packed: list[Batch] = []
    count = size = 0
    for plan in plans:
        part: Plan | None = None
        for operation in plan.operations:
            cost = _bytes(operation)
            if not packed or count + 2 > OPERATIONS_PER_MULTI or size + cost > MULTI_BYTES_MAX:
                packed.append(Batch([]))
                count = size = 0
                part = None
            if part is None:
                part = Plan(plan.group_id, plan.fence, [])
                packed[-1].parts.append(part)
                count += 1
                size += _bytes(plan.fence)
            part.operations.append(operation)
            count += 1
            size += cost
    return packed


def _bytes(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path.encode()) + len(data) + _OPERATION_OVERHEAD_BYTES
