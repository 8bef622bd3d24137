"""Where the broker listens, and which addresses it tells clients to come back to. Pure: nothing is resolved or bound.

The most common reason why a client reaches a broker and then hangs is an advertised address that the client cannot
reach. So the derived address always works from the same machine, and `warnings` says what to set for the others.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def number(self) -> int:
        """Kafka's number of the protocol, as UpdateMetadata carries it."""
        return list(SecurityProtocol).index(self)

    @property
    def encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def authenticated(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


DEFAULT_PROTOCOL_MAP = tuple(f"{protocol}:{protocol}" for protocol in SecurityProtocol)


class Endpoint(NamedTuple):
    """One address of one listener, to bind or to advertise."""

    name: str
    protocol: SecurityProtocol
    host: str
    """Empty: every interface, IPv4 and IPv6."""
    port: int
    """0: the system chooses when it is bound."""

    @property
    def everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_LOOPBACK = {"": "localhost", "::": "localhost", "0.0.0.0": "127.0.0.1"}  # noqa: S104
"""`localhost` may mean ::1 first, which a socket bound to IPv4 alone refuses."""

_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)://(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/\[\]]*)):([0-9]{1,5})\Z")


class ListenerSet(NamedTuple):
    """All listeners of a broker."""

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """What clients are told, by listener name. A port is 0 until `with_ports` knows better."""
    inter_broker_name: str
    warnings: tuple[str, ...] = ()

    def advertised_on(self, name: str) -> Endpoint | None:
        """The address for a client that came in by the listener `name`."""
        return next((endpoint for endpoint in self.advertised if endpoint.name == name), None)

    def with_ports(self, ports: Mapping[str, int]) -> ListenerSet:
        """The same listeners once bound: `ports` has the port that the system gave to each listener name."""

        def settled(endpoint: Endpoint) -> Endpoint:
            return endpoint if endpoint.port else endpoint._replace(port=ports[endpoint.name])

        return self._replace(
            bound=tuple(settled(endpoint) for endpoint in self.bound),
            advertised=tuple(settled(endpoint) for endpoint in self.advertised),
        )


def split_listener(text: str) -> tuple[str, str, int] | None:
    """Name in capitals, host and port of `NAME://host:port`; None if the text has not that form."""
    match = _LISTENER.match(text)
    if not match or int(match[4]) > 65_535:
        return None
    return match[1].upper(), match[2] or match[3] or "", int(match[4])


def parse_listeners(
    listeners: Sequence[str],
    *,
    advertised: Sequence[str] | None = None,
    protocol_map: Sequence[str] = DEFAULT_PROTOCOL_MAP,
    inter_broker_name: str | None = None,
    inter_broker_protocol: str = "PLAINTEXT",
    controller_names: Iterable[str] = (),
) -> ListenerSet:
    """What the listener keys together mean. Raises ConfigError with everything that is wrong in them."""
    problems: list[str] = []
    warnings: list[str] = []
    protocols = _parse_protocol_map(protocol_map, problems)
    ours = _without_controllers(listeners, {name.upper() for name in controller_names}, warnings)
    bound = _parse_endpoints("listeners", ours, protocols, problems)
    problems += _clashes(bound)
    if not bound and not problems:
        problems.append("listeners names no listener for clients: set for example listeners=PLAINTEXT://:9092.")
    if advertised:
        told = _without_controllers(advertised, {name.upper() for name in controller_names}, [])
        announced = _parse_endpoints("advertised.listeners", told, protocols, problems)
        problems += _advertised_problems(announced, bound)
        warnings += _unadvertised(announced, bound)
    else:
        announced = tuple(_derive_advertised(endpoint) for endpoint in bound)
        warnings += (_loopback_warning(endpoint) for endpoint in bound if endpoint.everywhere)
    chosen = _inter_broker(inter_broker_name, inter_broker_protocol, announced, problems)
    if problems:
        raise ConfigError(problems)
    return ListenerSet(bound, announced, chosen, tuple(warnings))


def _parse_protocol_map(entries: Sequence[str], problems: list[str]) -> dict[str, SecurityProtocol]:
    protocols = {}
    for entry in entries:
        name, _, protocol = (part.strip() for part in entry.partition(":"))
        if not name or protocol.upper() not in SecurityProtocol.__members__:
            problems.append(
                f"listener.security.protocol.map: {entry!r} must be NAME:PROTOCOL, where PROTOCOL is one of "
                f"{', '.join(SecurityProtocol)}."
            )
        else:
            protocols[name.upper()] = SecurityProtocol[protocol.upper()]
    return protocols


def _without_controllers(listeners: Sequence[str], controllers: set[str], warnings: list[str]) -> list[str]:
    """A file written for KRaft lists a listener for the quorum, which has no part here."""
    kept = [text for text in listeners if text.partition("://")[0].upper() not in controllers]
    if len(kept) < len(listeners):
        warnings.append(
            f"controller.listener.names={','.join(sorted(controllers))}: not opened, since Tidelog has no KRaft quorum."
        )
    return kept


def _parse_endpoints(
    key: str, texts: Sequence[str], protocols: Mapping[str, SecurityProtocol], problems: list[str]
) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for text in texts:
        parts = split_listener(text)
        if parts is None:
            problems.append(f"{key}: {text!r} must be NAME://host:port, for example PLAINTEXT://:9092.")
            continue
        name, host, port = parts
        if name not in protocols:
            problems.append(
                f"{key}: listener {name} has no security protocol. Add {name}:PLAINTEXT (or SSL, SASL_PLAINTEXT, "
                "SASL_SSL) to listener.security.protocol.map."
            )
        elif any(endpoint.name == name for endpoint in endpoints):
            problems.append(f"{key}: listener {name} is there twice. Give each its own name.")
        else:
            endpoints.append(Endpoint(name, protocols[name], host, port))
    return tuple(endpoints)


def _clashes(bound: Sequence[Endpoint]) -> list[str]:
    """Two listeners may share a port only as one IPv4 and one IPv6 address (KIP-797)."""
    problems = []
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in bound:
        by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if port and len(sharing) > 1 and not _one_of_each_family(sharing):
            names = " and ".join(endpoint.name for endpoint in sharing)
            problems.append(f"listeners: {names} both want port {port}. Give each its own port.")
    return problems


def _one_of_each_family(sharing: Sequence[Endpoint]) -> bool:
    return (
        len(sharing) == 2
        and all(endpoint.host for endpoint in sharing)
        and ((":" in sharing[0].host) != (":" in sharing[1].host))
    )


def _advertised_problems(announced: Sequence[Endpoint], bound: Sequence[Endpoint]) -> list[str]:
    problems = []
    ports = {endpoint.name: endpoint.port for endpoint in bound}
    for endpoint in announced:
        if endpoint.everywhere:
            problems.append(
                f"advertised.listeners: {endpoint} tells clients to connect to every address at once, which no client "
                f"can do. Name the host or address by which they reach this machine, for example "
                f"{endpoint.name}://{'localhost'}:{endpoint.port}, or leave advertised.listeners unset."
            )
        if endpoint.name not in ports:
            problems.append(
                f"advertised.listeners: {endpoint.name} is not in listeners "
                f"({', '.join(ports) or 'which are empty'}). Advertise a listener that exists."
            )
        elif not endpoint.port and ports[endpoint.name]:
            problems.append(f"advertised.listeners: {endpoint} has no port. Clients need one.")
    return problems


def _unadvertised(announced: Sequence[Endpoint], bound: Sequence[Endpoint]) -> list[str]:
    told = {endpoint.name for endpoint in announced}
    return [
        f"listener {endpoint.name} is not in advertised.listeners: clients that connect to it are told of no broker."
        for endpoint in bound
        if endpoint.name not in told
    ]


def _derive_advertised(endpoint: Endpoint) -> Endpoint:
    return endpoint._replace(host=_LOOPBACK[endpoint.host]) if endpoint.everywhere else endpoint


def _loopback_warning(endpoint: Endpoint) -> str:
    told = _derive_advertised(endpoint)
    return (
        f"listener {endpoint.name} accepts connections on every interface and tells clients to use {told.address}, "
        f"which only clients on this machine can. For clients elsewhere set advertised.listeners="
        f"{endpoint.name}://<name or address they reach this machine by>:{endpoint.port or '<port>'}."
    )


def _inter_broker(name: str | None, protocol: str, announced: Sequence[Endpoint], problems: list[str]) -> str:
    known = [endpoint.name for endpoint in announced]
    if name:
        if name.upper() not in known and not problems:
            problems.append(
                f"inter.broker.listener.name={name} is not an advertised listener. It must be one of "
                f"{', '.join(known)}."
            )
        return name.upper()
    if protocol in known or not known:
        return protocol
    return known[0]
