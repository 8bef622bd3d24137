"""A network for the brokers of a cluster, in which any of them can be cut off from any other, from ZooKeeper, or from
clients.

Each broker lives in a network namespace of its own, and so do the door to ZooKeeper and the place for clients; a bridge
joins them to this machine. What is cut is not refused but lost, as by a broken switch: connections stay open, and
nothing comes through them. Making namespaces takes root's rights on Linux, and iproute2.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.net.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

_BROKER_PORT = 9092
_DOOR_PORT = 2181
_CLIENTS, _DOOR, _OWN_HOST = 252, 253, 254
"""The last numbers in the network: of clients, of the door, and of this machine. Brokers have the first."""
_CUTS, _DELIVERY = 10, 100
"""Which rules for arriving packets come first."""
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_CHUNK_BYTES = 1 << 16
_SUBNETS = range(256)


class NetworkError(Exception):
    """The network cannot be made. The message says what is missing."""


class Way(Enum):
    """Which of what clients and a broker say to each other is lost."""

    BOTH = "neither hears the other"
    TO_BROKER = "requests do not arrive"
    TO_CLIENT = "requests arrive, answers do not"


class ClusterNetwork:
    """`with ClusterNetwork(3, zookeeper) as network`; `zookeeper` is where one server listens on this machine."""

    def __init__(self, brokers: int, zookeeper: Address) -> None:
        self._members = [*range(1, brokers + 1), _CLIENTS, _DOOR]
        self._name = f"tl{secrets.token_hex(3)}"
        self._subnet = _free_subnet()
        self._zookeeper = zookeeper
        self._door: _Door | None = None

    @property
    def zookeeper_connect(self) -> str:
        """What brokers reach ZooKeeper by."""
        return f"{self._host(_DOOR)}:{_DOOR_PORT}"

    def address(self, broker: int) -> Address:
        return Address(self._host(broker), _BROKER_PORT)

    def enter(self, broker: int) -> list[str]:
        """What a command begins with to be run at the broker's place."""
        return ["ip", "netns", "exec", self._namespace(broker)]

    def run_at_clients(self, work: Callable[[], T]) -> T:
        """Runs `work`, and every thread that it starts, at the place of clients, from which brokers can be cut off.

        Whoever connects from elsewhere on this machine, reaches all brokers that are not cut off altogether.
        """
        return _run_in(self._namespace(_CLIENTS), work)

    # Cutting and mending

    def cut(self, one: int, other: int) -> None:
        """Nothing goes from one broker to the other any more, nor back."""
        self._lose(one, other)
        self._lose(other, one)

    def cut_from_zookeeper(self, broker: int) -> None:
        """Brokers and clients still reach it."""
        self.cut(broker, _DOOR)

    def cut_from_clients(self, broker: int, way: Way = Way.BOTH) -> None:
        """Brokers and ZooKeeper still reach it, and so does everybody on this machine who is not at the place of
        clients."""
        if way is not Way.TO_CLIENT:
            self._lose(broker, _CLIENTS)
        if way is not Way.TO_BROKER:
            self._lose(_CLIENTS, broker)

    def cut_off(self, broker: int) -> None:
        """From everything: other brokers, ZooKeeper and clients."""
        _ip(f"link set {self._cable(broker)} down")

    def mend(self) -> None:
        """Everybody reaches everybody."""
        for member in self._members:
            for other in self._members:
                _ip(f"-n {self._namespace(member)} rule del pref {_CUTS} from {self._host(other)}", check=False)
            _ip(f"link set {self._cable(member)} up")

    def _lose(self, member: int, other: int) -> None:
        """What comes from the other is dropped on arrival: the sender learns nothing."""
        _ip(f"-n {self._namespace(member)} rule add pref {_CUTS} from {self._host(other)} blackhole")

    # Making and removing

    def __enter__(self) -> Self:
        try:
            _ip(f"link add name {self._name} type bridge")
            _ip(f"address add {self._host(_OWN_HOST)}/24 dev {self._name}")
            _ip(f"link set {self._name} up")
            for member in self._members:
                self._add(member)
            address = Address(self._host(_DOOR), _DOOR_PORT)
            listener = _run_in(self._namespace(_DOOR), lambda: socket.create_server(address, backlog=64))
            self._door = _Door(listener, self._zookeeper)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        for member in self._members:
            # A namespace may live on for a while, until the last connection in it is forgotten.
            _ip(f"link delete {self._cable(member)}", check=False)
            _ip(f"netns delete {self._namespace(member)}", check=False)
        _ip(f"link delete {self._name}", check=False)

    def _add(self, member: int) -> None:
        namespace, cable = self._namespace(member), self._cable(member)
        _ip(f"netns add {namespace}")
        _ip(f"link add {cable} type veth peer name eth0 netns {namespace}")
        _ip(f"link set {cable} master {self._name} up")
        _ip(f"-n {namespace} address add {self._host(member)}/24 dev eth0")
        _ip(f"-n {namespace} link set lo up")
        _ip(f"-n {namespace} link set eth0 up")
        # The rule that delivers to this host comes first, where nothing can be before it. Now something can.
        _ip(f"-n {namespace} rule add pref {_DELIVERY} lookup local")
        _ip(f"-n {namespace} rule del pref 0")

    def _host(self, number: int) -> str:
        return f"198.18.{self._subnet}.{number}"  # a range that is kept free for tests, and not routed anywhere

    def _namespace(self, member: int) -> str:
        return f"{self._name}-{member}"

    def _cable(self, member: int) -> str:
        return f"{self._name}v{member}"


class _Door:
    """Passes connections on to ZooKeeper, which listens to this machine only."""

    def __init__(self, listener: socket.socket, inside: Address) -> None:
        self._inside = inside
        self._listener = listener
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="door to ZooKeeper", daemon=True).start()

    def close(self) -> None:
        _end(self._listener)
        for end in self._open:
            _end(end)

    def _accept(self) -> None:
        while True:
            try:
                outer, _peer = self._listener.accept()
            except OSError:
                return
            try:
                inner = socket.create_connection(self._inside)
            except OSError:
                outer.close()
                continue
            self._open += [outer, inner]
            for source, target in ((outer, inner), (inner, outer)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _run_in(namespace: str, work: Callable[[], T]) -> T:
    """Runs `work` in another namespace, by a thread of its own. The sockets that it opens stay there."""

    def enter_and_work() -> T:
        with Path("/run/netns", namespace).open("rb") as file:
            if _LIBC.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise NetworkError(f"cannot enter namespace {namespace}: {os.strerror(ctypes.get_errno())}")
        return work()

    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(enter_and_work).result()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    except OSError:
        pass
    finally:
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for it, which closing alone does not
    connection.close()


def _free_subnet() -> int:
    taken = {int(number) for number in re.findall(r"\b198\.18\.(\d+)\.", _ip("-brief address"))}
    return secrets.choice([number for number in _SUBNETS if number not in taken])


def _ip(arguments: str, *, check: bool = True) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- our own arguments
            ["ip", *arguments.split()],  # noqa: S607 -- wherever the system has it
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise NetworkError("`ip` is not on the PATH: install iproute2") from None
    if check and done.returncode != 0:
        raise NetworkError(f"`ip {arguments}` failed ({done.stderr.strip()}): namespaces take root's rights on Linux")
    return done.stdout
