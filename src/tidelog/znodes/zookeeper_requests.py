"""What is asked of ZooKeeper and what it answers, as kazoo's messages on one side and the store's terms on the other.

No IO. Paths on the outside are the store's; on the inside they begin with the chroot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo import exceptions as refusals  # type: ignore[import-untyped]
from kazoo import security
from kazoo.protocol import serialization as wire  # type: ignore[import-untyped]
from kazoo.protocol.states import EventType as KazooEventType  # type: ignore[import-untyped]

from tidelog.znodes.access import Access, access_to
from tidelog.znodes.errors import (
    BadArguments,
    BadVersion,
    ConnectionLost,
    MultiError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    SessionExpired,
    StoreFull,
    StoreUnavailable,
    TooLarge,
    ZnodeError,
)
from tidelog.znodes.path_rules import ROOT
from tidelog.znodes.store import (
    Create,
    Delete,
    EventType,
    Operation,
    OperationResult,
    SetData,
    Stat,
    WatchEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EPHEMERAL = 1
_SEQUENTIAL = 2

_ACLS = {
    Access.OPEN: security.OPEN_ACL_UNSAFE,
    Access.READABLE: security.CREATOR_ALL_ACL + security.READ_ACL_UNSAFE,
    Access.SECRET: security.CREATOR_ALL_ACL,
}

_EVENT_TYPES = {
    KazooEventType.CREATED: EventType.CREATED,
    KazooEventType.DELETED: EventType.DELETED,
    KazooEventType.CHANGED: EventType.DATA_CHANGED,
    KazooEventType.CHILD: EventType.CHILDREN_CHANGED,
}

_ABOUT_A_PATH: dict[type[Exception], Callable[[str], ZnodeError]] = {
    refusals.NoNodeError: NoNode,
    refusals.NodeExistsError: NodeExists,
    refusals.BadVersionError: BadVersion,
    refusals.NotEmptyError: NotEmpty,
    refusals.NoAuthError: NotAllowed,
    refusals.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}

_ANSWER_LOST = (
    refusals.ConnectionLoss,
    refusals.OperationTimeoutError,
    refusals.RequestTimeoutError,
    refusals.SessionMovedError,
    refusals.ThrottledOpError,
)


class UnknownRequest(StoreUnavailable):
    """The server is too old for it."""


class Translator:
    """Knows where our tree stands in ZooKeeper's, and who may do what in it."""

    def __init__(self, chroot: str, *, protect: bool) -> None:
        self._chroot = chroot
        self._protect = protect
        self.prefix_bytes = len(chroot.encode())

    def inside(self, path: str) -> str:
        if not self._chroot:
            return path
        return self._chroot if path == ROOT else self._chroot + path

    def outside(self, path: str) -> str:
        return path[len(self._chroot) :] or ROOT

    def read_data(self, path: str, watcher: Callable[[Any], None] | None) -> Any:
        return wire.GetData(self.inside(path), watcher)

    def read_stat(self, path: str, watcher: Callable[[Any], None] | None) -> Any:
        return wire.Exists(self.inside(path), watcher)

    def read_children(self, path: str, watcher: Callable[[Any], None] | None) -> Any:
        return wire.GetChildren(self.inside(path), watcher)

    def read_many(self, paths: Sequence[str]) -> Any:
        return ReadMany([self.inside(path) for path in paths])

    def write(self, operation: Operation) -> Any:
        """One operation of a multi; all but Check can also be sent on their own."""
        path = self.inside(operation.path)
        if isinstance(operation, Create):
            # One that ends in / gets only a number for its name, and the chroot alone has no such ending.
            path = f"{self._chroot}{operation.path}" if operation.sequential else path
            flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
            acl = _ACLS[access_to(operation.path, protect=self._protect)]
            return wire.Create(path, operation.data, acl, flags)
        if isinstance(operation, SetData):
            return wire.SetData(path, operation.data, operation.version)
        if isinstance(operation, Delete):
            return wire.Delete(path, operation.version)
        return wire.CheckVersion(path, operation.version)

    def write_all(self, operations: Sequence[Operation]) -> Any:
        return wire.Transaction([self.write(operation) for operation in operations])

    def result(self, answer: Any) -> OperationResult:
        if isinstance(answer, str):
            return self.outside(answer)
        return None if answer is True else stat_of(answer)

    def results(self, operations: Sequence[Operation], answers: Sequence[Any]) -> list[OperationResult]:
        """Raises MultiError."""
        for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
            # Those before the operation that failed were rolled back; those after it were not looked at.
            if isinstance(answer, Exception) and not isinstance(answer, refusals.RolledBackError):
                raise MultiError(index, error_of(answer, operation.path))
        return [self.result(answer) for answer in answers]

    def event(self, event: Any) -> WatchEvent | None:
        """None: it only says that the connection is gone, which the session's state tells better."""
        type_ = _EVENT_TYPES.get(event.type)
        return None if type_ is None else WatchEvent(type_, self.outside(event.path))


class ReadMany:
    """Reads several nodes with one request (multiRead, since ZooKeeper 3.6), which kazoo does not know."""

    type = 22

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytearray:
        message = bytearray()
        for path in self._paths:
            message += wire.MultiHeader(wire.GetData.type, False, -1).serialize()
            message += wire.GetData(path, None).serialize()
        message += wire.MultiHeader(-1, True, -1).serialize()
        return message

    @classmethod
    def deserialize(cls, message: bytes, offset: int) -> list[Any]:
        """For each node kazoo's (data, stat), or the refusal as an exception."""
        found: list[Any] = []
        header, offset = wire.MultiHeader.deserialize(message, offset)
        while not header.done:
            if header.type == wire.GetData.type:
                found.append(wire.GetData.deserialize(message, offset))
                _, offset = wire.read_buffer(message, offset)
                offset += wire.stat_struct.size
            else:
                (code,) = wire.int_struct.unpack_from(message, offset)
                offset += wire.int_struct.size
                found.append(refusals.EXCEPTIONS[code]())
            header, offset = wire.MultiHeader.deserialize(message, offset)
        return found


def node_of(answer: Any) -> tuple[bytes, Stat]:
    data, stat = answer
    return data or b"", stat_of(stat)


def stat_of(stat: Any) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
    )


def error_of(error: Exception, path: str) -> ZnodeError:
    if isinstance(error, ZnodeError):
        return error
    about_a_path = _ABOUT_A_PATH.get(type(error))
    if about_a_path is not None:
        return about_a_path(path)
    if isinstance(error, refusals.SessionExpiredError):
        return SessionExpired("the session with ZooKeeper has ended")
    if isinstance(error, _ANSWER_LOST):
        return ConnectionLost(f"{path}: ZooKeeper's answer was lost ({type(error).__name__})")
    if isinstance(error, refusals.UnimplementedError):
        return UnknownRequest(f"{path}: ZooKeeper does not know the request: use a newer one")
    if isinstance(error, refusals.BadArgumentsError):
        return BadArguments(f"{path}: ZooKeeper calls the request malformed")
    if isinstance(error, refusals.MarshallingError):
        return TooLarge(f"{path}: ZooKeeper cannot take in the request: make it smaller, or raise its jute.maxbuffer")
    if isinstance(error, refusals.QuotaExceededError):
        return StoreFull(f"{path}: the quota that ZooKeeper has for this part of the tree is used up")
    if isinstance(error, (refusals.InvalidACLError, refusals.AuthFailedError)):
        return StoreUnavailable(f"{path}: ZooKeeper does not accept who we are: check tidelog.zookeeper.digest")
    return StoreUnavailable(f"{path}: ZooKeeper cannot do it: {type(error).__name__} {error}".rstrip())
