"""The other brokers, as those who send to them see them: a broker's id and a message in, its answer out.

What is sent to this broker itself, as a controller does, takes no socket: it goes straight to the handler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.broker.peer_line import PeerLine
from tidelog.errors import PeerUnreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tidelog.handlers.handler import Handler
    from tidelog.net.address import Address
    from tidelog.wire.declare import Message


class Peers:
    def __init__(
        self,
        local_id: int,
        secret: bytes,
        served: Mapping[int, Handler[Any, Any]],
        address_of: Callable[[int], Address | None],
        answer_locally: Callable[[Message], Awaitable[Message]],
    ) -> None:
        """`address_of` tells where a broker listens for other brokers now; None if it is not there."""
        self._local_id = local_id
        self._secret = secret
        self._served = served
        self._address_of = address_of
        self._answer_locally = answer_locally
        self._lines: dict[tuple[int, str], PeerLine] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def sender(self, purpose: str, timeout_s: float) -> Callable[[int, Message], Awaitable[Any]]:
        """A way to send. Requests of different purposes do not hold each other up."""

        async def send(broker_id: int, request: Message) -> Message:
            if broker_id == self._local_id:
                return await self._answer_locally(request)
            line = await self._line(broker_id, purpose, timeout_s)
            return await line.send(request, self._served[request.API].response)

        return send

    def hang_up_on_absent(self) -> None:
        """Tells everybody who waits for a broker that is no longer in the cluster. If it hangs, nobody else does: its
        connections stay open."""
        for key in [key for key in self._lines if self._address_of(key[0]) is None]:
            closing = asyncio.get_running_loop().create_task(self._lines.pop(key).close(), name=f"hang up on {key[0]}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            await line.close()
        await asyncio.gather(*self._closing)

    async def _line(self, broker_id: int, purpose: str, timeout_s: float) -> PeerLine:
        address = self._address_of(broker_id)
        if address is None:
            raise PeerUnreachable(f"broker {broker_id} is not in the cluster now")
        line = self._lines.get((broker_id, purpose))
        if line is None or line.address != address:
            if line is not None:
                await line.close()
            line = self._lines[broker_id, purpose] = PeerLine(address, self._local_id, self._secret, purpose, timeout_s)
        return line
