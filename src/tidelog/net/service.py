"""What connections are for, and what the connections of one listener share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.net.complaints import Complaints
    from tidelog.net.connection import Connection
    from tidelog.net.limits import ConnectionLimits
    from tidelog.net.outgoing import Outcome, Parked, Reply
    from tidelog.net.receive_buffer import Scratch


class Service(Protocol):
    """Answers frames. It sees bytes and connections, never sockets."""

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        """Answers one frame (without its length prefix), or raises CloseConnection.

        `frame` is writable and valid until this returns or, if this returns a coroutine, until that is done.
        """


@dataclass(slots=True)
class Host:
    """What a listener gives each of its connections."""

    loop: asyncio.AbstractEventLoop
    listener_name: str
    service: Service
    limits: ConnectionLimits
    scratch: Scratch
    complaints: Complaints
    on_closed: Callable[[Connection], None]
    tasks: set[asyncio.Task[Reply | Parked]] = field(default_factory=set)
    """Coroutines at work, also those whose connection is gone: what they began they may finish."""
