"""Reads lists of broker addresses such as `host:9092,[::1]:9093`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.net.address import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 9092


def parse_bootstrap(servers: str | Sequence[str]) -> tuple[Address, ...]:
    """Duplicates are dropped, the order is kept, a missing port is 9092; ValueError says which part is wrong."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [_parse(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ValueError("no broker address given: name at least one as host:port")
    return tuple(dict.fromkeys(addresses))


def _parse(text: str) -> Address:
    if "/" in text:
        raise ValueError(f"broker address {text!r} is not host:port (no protocol, no path)")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"broker address {text!r} is not [ipv6]:port")
        port = rest[1:]
    elif text.count(":") > 1:
        raise ValueError(f"broker address {text!r}: write IPv6 addresses as [address]:port")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"broker address {text!r} is not host:port")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"broker address {text!r}: the port must be a number from 1 to 65535")
    return Address(host, int(port))
