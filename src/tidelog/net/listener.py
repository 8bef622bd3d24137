"""Listens on one address: accepts connections within the limits, sweeps idle ones away, and stops gracefully."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.net.address import Address
from tidelog.net.admission import Admission, AdmissionLimits
from tidelog.net.complaints import Complaints
from tidelog.net.connection import Connection
from tidelog.net.limits import ConnectionLimits
from tidelog.net.receive_buffer import Scratch
from tidelog.net.service import Host, Service

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.clock import Clock

__all__ = ["CannotListenError", "Listener", "Service", "SocketOptions"]

_log = logging.getLogger("tidelog.net")

SWEEP_INTERVAL_S = 5.0
ACCEPT_PAUSE_S = 1.0
"""How long no connection is accepted after the system had no room for one."""

_ACCEPTS_PER_TURN = 64
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE_ALREADY = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ECONNRESET})


class CannotListenError(OSError):
    """The address cannot be listened on. The message says what to do."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    backlog: int = 512
    """Kafka's `socket.listen.backlog.size`."""

    receive_buffer_bytes: int = -1
    """Kafka's `socket.receive.buffer.bytes`; -1 leaves it to the system, which adapts it to the connection."""

    send_buffer_bytes: int = -1
    """Kafka's `socket.send.buffer.bytes`; -1 as above."""


class Listener:
    """`admission` is shared by the listeners of a broker, `scratch` by all that runs on one event loop."""

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        clock: Clock,
        limits: ConnectionLimits | None = None,
        admission: Admission | None = None,
        options: SocketOptions | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self.name = name
        self._service = service
        self._clock = clock
        self._limits = limits or ConnectionLimits()
        self._admission = admission or Admission(AdmissionLimits())
        self._options = options or SocketOptions()
        self._scratch = scratch or Scratch()
        self._complaints = Complaints(clock)
        self._connections: set[Connection] = set()
        self._sockets: list[socket.socket] = []
        self._addresses: list[Address] = []
        self._host: Host | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None

    @property
    def addresses(self) -> list[Address]:
        """What the listener is bound to, with the real port where 0 was asked for."""
        return list(self._addresses)

    @property
    def port(self) -> int:
        return self._addresses[0].port

    @property
    def connections(self) -> Collection[Connection]:
        return self._connections

    async def start(self, host: str, port: int) -> None:
        """Binds and accepts from now on. An empty `host` means all interfaces; port 0 lets the system choose."""
        assert self._host is None, "a listener is started once"
        loop = asyncio.get_running_loop()
        self._sockets = await _bind(loop, host, port, self._options)
        self._addresses = [Address.of(sock.getsockname()) for sock in self._sockets]
        self._host = Host(
            loop=loop,
            listener_name=self.name,
            service=self._service,
            limits=self._limits,
            scratch=self._scratch,
            complaints=self._complaints,
            on_closed=self._on_closed,
        )
        self._accept_again()
        self._sweep_timer = loop.call_later(self._sweep_interval_s, self._sweep_on, loop)

    async def stop(self, grace_s: float) -> None:
        """Accepts no more, lets replies in progress go out for up to `grace_s`, then closes what is left.

        Coroutines that have not finished by then are cancelled and waited for.
        """
        if self._host is None:
            return
        self._stop_accepting()
        for connection in list(self._connections):
            connection.finish()
        await self._wait_until_closed(grace_s)
        for connection in list(self._connections):
            connection.close("the broker stops")
        tasks = set(self._host.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def sweep(self) -> None:
        """Closes idle connections. Runs by itself every few seconds."""
        now = self._clock.monotonic()
        for connection in list(self._connections):
            connection.sweep(now)

    def _sweep_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sweep()
        self._sweep_timer = loop.call_later(self._sweep_interval_s, self._sweep_on, loop)

    @property
    def _sweep_interval_s(self) -> float:
        timeout_s = self._limits.idle_timeout_s
        return SWEEP_INTERVAL_S if timeout_s is None else min(SWEEP_INTERVAL_S, max(timeout_s / 4, 0.05))

    # Accepting

    def _on_acceptable(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, sockaddr = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE_ALREADY:
                    continue
                self._pause_accepting(error)
                return
            self._welcome(sock, Address.of(sockaddr))

    def _welcome(self, sock: socket.socket, peer: Address) -> None:
        assert self._host is not None
        refusal = self._admission.enter(peer.host)
        if refusal is not None:
            self._complaints.warn("connection refused", f"{peer} on {self.name}: {refusal}")
            sock.close()
            return
        try:
            sock.setblocking(False)
            _apply_options(sock, self._options)
        except OSError as error:
            _log.debug("connection of %s to %s was gone at once: %s", peer, self.name, error)
            self._admission.leave(peer.host)
            sock.close()
            return
        self._connections.add(Connection(sock, peer, self._host, self._clock.monotonic()))

    def _on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._admission.leave(connection.peer.host)
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _pause_accepting(self, error: OSError) -> None:
        """Without a pause the waiting connection would wake us again at once, and for ever."""
        assert self._host is not None
        advice = ": raise the open file limit (ulimit -n), or lower max.connections" if error.errno in _NO_ROOM else ""
        self._complaints.warn(
            "cannot accept",
            f"{self.name} accepts no connection for {ACCEPT_PAUSE_S:g} s: {error.strerror or error}{advice}",
        )
        loop = self._host.loop
        for sock in self._sockets:
            loop.remove_reader(sock.fileno())
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        self._accept_timer = loop.call_later(ACCEPT_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        assert self._host is not None
        self._accept_timer = None
        for sock in self._sockets:
            self._host.loop.add_reader(sock.fileno(), self._on_acceptable, sock)

    # Stopping

    def _stop_accepting(self) -> None:
        assert self._host is not None
        if self._accept_timer is not None:
            self._accept_timer.cancel()
            self._accept_timer = None
        for sock in self._sockets:
            self._host.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    async def _wait_until_closed(self, grace_s: float) -> None:
        if not self._connections:
            return
        assert self._host is not None
        self._all_closed = self._host.loop.create_future()
        await asyncio.wait([self._all_closed], timeout=grace_s)


def _apply_options(sock: socket.socket, options: SocketOptions) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)


async def _bind(loop: asyncio.AbstractEventLoop, host: str, port: int, options: SocketOptions) -> list[socket.socket]:
    """One listening socket per address of `host`, all on the same port."""
    bound: list[socket.socket] = []
    try:
        for family, address in await _resolve(loop, host, port):
            actual_port = bound[0].getsockname()[1] if bound and not port else port
            sock = socket.socket(family, socket.SOCK_STREAM)
            bound.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(host)))
            if options.receive_buffer_bytes > 0:
                # Before listen(), or the window the peer is offered cannot use it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            sock.bind((address, actual_port))
            sock.listen(options.backlog)
    except OSError as error:
        for sock in bound:
            sock.close()
        raise _explain(error, host, port) from error
    return bound


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    if not host:
        dual = socket.has_dualstack_ipv6()
        return [(socket.AF_INET6, "::")] if dual else [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - asked for
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    unique = dict.fromkeys((family, str(sockaddr[0])) for family, _, _, _, sockaddr in found)
    return list(unique)


def _explain(error: OSError, host: str, port: int) -> CannotListenError:
    where = Address(host or "all interfaces", port)
    if isinstance(error, socket.gaierror):
        text = f"cannot listen on {where}: the name {host!r} has no address here ({error.strerror})"
    elif error.errno == errno.EADDRINUSE:
        text = f"cannot listen on {where}: the port is taken, perhaps by another broker; stop it or change `listeners`"
    elif error.errno == errno.EADDRNOTAVAIL:
        text = f"cannot listen on {where}: this machine has no such address; correct `listeners`"
    elif error.errno == errno.EACCES:
        text = f"cannot listen on {where}: ports below 1024 need privileges; choose another in `listeners`"
    else:
        text = f"cannot listen on {where}: {error.strerror or error}"
    return CannotListenError(error.errno, text)
