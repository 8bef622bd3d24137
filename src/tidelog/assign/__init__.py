"""Who reads which partition: pure functions over plain values, shared by the client and the group coordinator.

Members that lead a classic group run one of `CLASSIC`; the coordinator of a group of the newer protocol runs one of
`SERVER_SIDE`. Topics are whatever the caller names them by: names on the client, ids on the broker.
"""

from __future__ import annotations

from tidelog.assign.cooperative import cooperative_sticky
from tidelog.assign.ranges import classic_range, server_range
from tidelog.assign.round_robin import round_robin
from tidelog.assign.sticky import sticky, uniform
from tidelog.assign.subscriber import Assignor, Subscriber

__all__ = ["CLASSIC", "SERVER_SIDE", "Assignor", "Subscriber"]

CLASSIC: dict[str, Assignor[str]] = {
    "range": classic_range,
    "roundrobin": round_robin,
    "sticky": sticky,
    "cooperative-sticky": cooperative_sticky,
}
"""By the names under which members of classic groups offer them to each other."""

SERVER_SIDE: dict[str, Assignor[bytes]] = {"uniform": uniform, "range": server_range}
