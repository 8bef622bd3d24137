"""Who may do what with a node, when nodes are to be protected (`zookeeper.set.acl`). Pure.

The rules are Kafka's: only brokers change the tree, everybody may read it, except where secrets are. `/consumers`
stays open, because consumers of old wrote below it themselves.
"""

from __future__ import annotations

from enum import Enum

from tidelog.znodes import paths

_SECRET = (paths.CONFIG_USERS, paths.CONFIG_BROKERS, paths.CLUSTER_SECRET, "/delegation_token")


class Access(Enum):
    OPEN = "everybody may do everything"
    READABLE = "its creator may do everything, everybody else may read"
    SECRET = "its creator may do everything, nobody else may do anything"  # noqa: S105 - no password


def access_to(path: str, *, protect: bool) -> Access:
    if not protect or path == paths.CONSUMERS:
        return Access.OPEN
    if any(path == secret or path.startswith(f"{secret}/") for secret in _SECRET):
        return Access.SECRET
    return Access.READABLE
