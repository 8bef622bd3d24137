"""The address of one end of a connection, printable."""

from __future__ import annotations

from typing import Any, NamedTuple

_IPV4_IN_IPV6 = "::ffff:"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def of(cls, sockaddr: Any) -> Address:
        """From what the socket module gives: a tuple for IP, a path for Unix sockets."""
        if not isinstance(sockaddr, tuple):
            return cls("local", 0)
        host = str(sockaddr[0])
        if host.startswith(_IPV4_IN_IPV6) and "." in host:
            # An IPv4 peer of a dual-stack socket is the same peer as on an IPv4 socket, for limits and for people.
            host = host.removeprefix(_IPV4_IN_IPV6)
        return cls(host, int(sockaddr[1]))
