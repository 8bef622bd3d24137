"""The network between simulated machines: messages take time, get lost with their connection, and meet cut cables.

What one connection carries arrives in order, as TCP has it; connections overtake each other. Messages that meet a cut
wait for it to heal, as retransmission does, and then arrive late or never: also those whose sender has long given up
and opened another connection. Every message crosses as encoded bytes, so nobody shares an object.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.errors import PeerUnreachable
from tidelog.testing.sim.server_end import ServerEnd
from tidelog.wire.api_keys import api_name
from tidelog.wire.codec import decode
from tidelog.wire.declare import Message
from tidelog.wire.headers import encode_request, response_body

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from tidelog.handlers.handler import Handler
    from tidelog.testing.sim.server_end import FrameService
    from tidelog.testing.sim.timeline import SimLoop, Timeline
    from tidelog.testing.sim.trace import Trace

M = TypeVar("M", bound=Message)

Address = int | str
"""Brokers have numbers, everybody else a name."""

_LENGTH_BYTES = 4


@dataclass(slots=True)
class Weather:
    """How the network behaves; may change while it is in use."""

    delay_s_min: float = 0.0002
    delay_s_mean: float = 0.001
    slow_chance: float = 0.01
    slow_s_max: float = 0.3
    loss_chance: float = 0.0
    """Of a message and the connection it travels on."""
    late_chance: float = 0.5
    """That a message whose connection was given up arrives all the same."""


class Pipe:
    """One direction of a connection: first in, first out."""

    __slots__ = ("last_arrival",)

    def __init__(self) -> None:
        self.last_arrival = 0.0


class Machine(Protocol):
    """Who can be reached: a loop, what it serves, and by which handlers."""

    @property
    def loop(self) -> SimLoop: ...

    @property
    def service(self) -> FrameService: ...

    @property
    def served(self) -> Mapping[int, Handler[Any, Any]]: ...


class SimNetwork:
    def __init__(self, timeline: Timeline, ether: SimLoop, trace: Trace, chance: random.Random) -> None:
        """`ether` is a loop that is never stopped: messages travel whatever happens to machines."""
        self.weather = Weather()
        self._timeline = timeline
        self._ether = ether
        self._trace = trace
        self._chance = chance
        self._machines: dict[Address, Machine] = {}
        self._connections: dict[int, Connection] = {}
        self._connection_number = 0
        self._cuts: dict[tuple[Address, Address], None] = {}
        self._held: list[tuple[Address, Address, Callable[[], None], Callable[[], None]]] = []
        """What arrived at a cut."""
        self.messages = 0

    # -- machines -----------------------------------------------------------------------------------------------

    def attach(self, address: Address, machine: Machine) -> None:
        self._machines[address] = machine

    def detach(self, address: Address, *, silently: bool) -> None:
        """The machine is gone. A killed process's peers are told by its kernel; those of a dead machine are not."""
        machine = self._machines.pop(address, None)
        for connection in list(self._connections.values()):
            if connection.origin == address:
                del self._connections[connection.number]
                connection.open = False
                if connection.server and not silently:
                    self._later(connection.server.close)
            elif connection.target == address and connection.machine is machine and not silently:
                self._later(connection.break_off, "the broker is gone")

    def machine(self, address: Address) -> Machine | None:
        return self._machines.get(address)

    # -- faults -------------------------------------------------------------------------------------------------

    def cut(self, source: Address, target: Address) -> None:
        """Nothing gets from `source` to `target`, until `heal`."""
        self._cuts[source, target] = None

    def is_cut(self, source: Address, target: Address) -> bool:
        return (source, target) in self._cuts

    def heal(self, source: Address, target: Address) -> None:
        self._cuts.pop((source, target), None)
        waiting = [each for each in self._held if each[:2] == (source, target)]
        self._held = [each for each in self._held if each[:2] != (source, target)]
        for _source, _target, arrive, lose in waiting:
            if self._chance.random() < self.weather.late_chance:
                arrive()
            else:
                lose()

    def heal_all(self) -> None:
        for source, target in list(self._cuts):
            self.heal(source, target)

    # -- travelling ---------------------------------------------------------------------------------------------

    def transmit(
        self, source: Address, target: Address, pipe: Pipe, arrive: Callable[[], None], lose: Callable[[], None]
    ) -> None:
        """Calls `arrive` when the message gets there; or `lose`, after which its connection is of no use any more."""
        self.messages += 1
        arrival = max(self._timeline.now + self.delay_s(), pipe.last_arrival)
        pipe.last_arrival = arrival

        def arrived() -> None:
            if (source, target) in self._cuts:
                self._held.append((source, target, arrive, lose))
            else:
                arrive()

        self._ether.call_at(arrival, arrived)

    def is_lost(self) -> bool:
        return self.weather.loss_chance > 0 and self._chance.random() < self.weather.loss_chance

    def arrives_late(self) -> bool:
        """Whether a message of a connection that was given up arrives."""
        return self._chance.random() < self.weather.late_chance

    def delay_s(self) -> float:
        weather, chance = self.weather, self._chance
        delay = weather.delay_s_min + chance.expovariate(1 / weather.delay_s_mean)
        if chance.random() < weather.slow_chance:
            delay += chance.uniform(0, weather.slow_s_max)
        return delay

    def note(self, who: object, what: str) -> None:
        self._trace.note(self._timeline.now, who, what)

    def _later(self, callback: Callable[..., None], *args: object) -> None:
        self._ether.call_later(self.delay_s(), callback, *args)

    # -- sending ------------------------------------------------------------------------------------------------

    def sender(
        self, origin: Address, loop: SimLoop, purpose: str, timeout_s: float
    ) -> Callable[[Address, Message], Awaitable[Any]]:
        """A way to send to anybody, on connections of one purpose. Who sends by a number has proved to be a broker."""
        lines: dict[Address, Line] = {}

        async def send(target: Address, request: Message) -> Message:
            line = lines.get(target)
            if line is None:
                line = lines[target] = Line(self, origin, loop, target, purpose, timeout_s)
            return await line.send(request)

        return send

    def connect(self, origin: Address, loop: SimLoop, target: Address) -> Connection:
        machine = self._machines.get(target)
        if machine is None:
            raise PeerUnreachable(f"nobody listens at {target}")
        self._connection_number += 1
        connection = Connection(self, self._connection_number, origin, loop, target, machine)
        self._connections[connection.number] = connection
        return connection

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)

    def reset(self, connection: Connection, why: str) -> None:
        """The other end does not know the connection: its origin hears of it a moment later."""
        self._later(connection.break_off, why)


class Connection:
    """Both ends of one connection. `open` is what its origin believes."""

    def __init__(
        self, network: SimNetwork, number: int, origin: Address, loop: SimLoop, target: Address, machine: Machine
    ) -> None:
        self.number = number
        self.origin = origin
        self.target = target
        self.machine = machine
        """The one that was there when it was opened; another one knows nothing of it."""
        self.open = True
        self.server: ServerEnd | None = None
        self._network = network
        self._loop = loop
        self._requests, self._replies = Pipe(), Pipe()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def send(self, frame: bytearray, correlation_id: int, what: str) -> asyncio.Future[bytes]:
        network = self._network
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[correlation_id] = future
        if network.is_lost():
            network.reset(self, "the request was lost")
            return future

        def arrive() -> None:
            if not self.open and not network.arrives_late():
                return
            if network.machine(self.target) is not self.machine:
                network.reset(self, "the broker has been restarted")
                return
            network.note(self.target, f"<- {self.origin} {what} {zlib.crc32(frame):08x}")
            self.machine.loop.call_soon(self._server_end().receive, frame)

        network.transmit(self.origin, self.target, self._requests, arrive, self._lose)
        return future

    def _server_end(self) -> ServerEnd:
        if self.server is None:
            identity = self.origin if isinstance(self.origin, int) else None
            self.server = ServerEnd(
                self.machine.loop, self.machine.service, str(self.origin), identity, self._reply, self._end
            )
        return self.server

    def _reply(self, frame: bytes) -> None:
        network = self._network
        if network.is_lost():
            network.reset(self, "the reply was lost")
            return

        def arrive() -> None:
            future = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
            if self.open and future is not None:
                network.note(self.origin, f"-> {self.target} answered {zlib.crc32(frame):08x}")
                self._loop.call_soon(_deliver, future, frame)

        network.transmit(self.target, self.origin, self._replies, arrive, self._lose)

    def _lose(self) -> None:
        self._network.reset(self, "a message was lost")

    def _end(self) -> None:
        """The other end has closed it."""
        self._network.reset(self, "closed by the broker")

    def break_off(self, why: str) -> None:
        """The origin learns, or decides, that the connection is of no more use."""
        if not self.open:
            return
        self.open = False
        self._network.forget(self)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            self._loop.call_soon(_fail, future, PeerUnreachable(f"{self.target}: {why}"))
        if self.server is not None:
            server = self.server
            self._network.transmit(self.origin, self.target, self._requests, server.close, server.close)


def _deliver(future: asyncio.Future[bytes], frame: bytes) -> None:
    if not future.done():
        future.set_result(frame)


def _fail(future: asyncio.Future[bytes], error: PeerUnreachable) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # who waited may have gone away


class Line:
    """A way to one other machine: a connection that is opened anew when it breaks."""

    def __init__(
        self, network: SimNetwork, origin: Address, loop: SimLoop, target: Address, purpose: str, timeout_s: float
    ) -> None:
        self._network = network
        self._origin = origin
        self._loop = loop
        self._target = target
        self._client_id = f"{origin}-{purpose}"
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._correlation_id = 0

    async def send(self, request: Message) -> Message:
        """Raises PeerUnreachable: there was no answer, but the request may have been carried out."""
        connection = self._connection
        if connection is None or not connection.open:
            try:
                connection = self._connection = self._network.connect(self._origin, self._loop, self._target)
            except PeerUnreachable:
                await asyncio.sleep(self._network.delay_s())
                raise
        handler = connection.machine.served.get(request.API)
        if handler is None:
            raise PeerUnreachable(f"{self._target} does not offer {api_name(request.API)}")
        version = min(handler.versions[1], request.VERSIONS.last)
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, self._client_id)[_LENGTH_BYTES:]
        reply = connection.send(frame, self._correlation_id, f"{api_name(request.API)} v{version}")
        timer = self._loop.call_later(self._timeout_s, connection.break_off, "no answer in time")
        try:
            answer = memoryview(await reply)
        finally:
            timer.cancel()
        response: type[Message] = handler.response
        return decode(response, answer, version, response_body(response, answer, version))
