"""What can go wrong with znodes.

ZnodeError
 +-- NoNode  NodeExists  BadVersion  NotEmpty  NoChildrenForEphemerals  BadArguments  TooLarge     the request's fault
 +-- NotAllowed                                  the node is protected from us
 +-- MultiError                                  one operation of a multi failed, so none was done
 +-- ConnectionLost                              the answer was lost: the write may have happened or not
 +-- SessionExpired                              ephemerals and watches are gone; see store.py for what comes after
 +-- StoreFull                                   nothing was written; it may be tried again when there is room
 +-- StoreUnavailable                            the store cannot be opened, or failed for good
      +-- StoreInUse  StoreDamaged
NodeFormatError                                  a node's data is not what its path promises
"""

# ruff: noqa: N818 - the names are ZooKeeper's, which everybody who knows it looks for

from __future__ import annotations


class ZnodeError(Exception):
    """Base of what the store itself raises."""


class _PathError(ZnodeError):
    problem = ""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {self.problem}")
        self.path = path


class NoNode(_PathError):
    problem = "there is no such node"


class NodeExists(_PathError):
    problem = "there is such a node already"


class BadVersion(_PathError):
    problem = "the node has another version by now"


class NotEmpty(_PathError):
    problem = "the node has children"


class NoChildrenForEphemerals(_PathError):
    problem = "the parent is ephemeral, so it can have no children"


class NotAllowed(_PathError):
    problem = "its ACL does not let us do that: check that tidelog.zookeeper.digest is that of whoever created it"


class BadArguments(ZnodeError):
    """The path or the request is malformed."""


class TooLarge(ZnodeError):
    """More data than ZooKeeper takes in one request."""


class MultiError(ZnodeError):
    """None of the operations was done, because the one at `index` fails with `cause`."""

    def __init__(self, index: int, cause: ZnodeError) -> None:
        super().__init__(f"operation {index} of the multi: {cause}")
        self.index = index
        self.cause = cause


class ConnectionLost(ZnodeError):
    pass


class SessionExpired(ZnodeError):
    pass


class StoreFull(ZnodeError):
    pass


class StoreUnavailable(ZnodeError):
    pass


class StoreInUse(StoreUnavailable):
    pass


class StoreDamaged(StoreUnavailable):
    pass


class NodeFormatError(Exception):
    """The data of a node cannot be understood. The message names the node and what is wrong with it."""
