"""Who may connect: the number of connections in all and per address. Shared by a broker's listeners."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    connections_max: int = 2**31 - 1
    """Kafka's `max.connections`."""

    connections_max_per_ip: int = 2**31 - 1
    """Kafka's `max.connections.per.ip`; 0 admits only the addresses in the overrides."""

    per_ip_overrides: dict[str, int] = field(default_factory=dict)
    """Kafka's `max.connections.per.ip.overrides`."""


class Admission:
    """Counts connections. Each `enter` that gives None is matched by one `leave` of the same address."""

    __slots__ = ("_limits", "_per_ip", "count")

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._per_ip: dict[str, int] = {}
        self.count = 0

    def enter(self, ip: str) -> str | None:
        """Lets one more connection in, or says why not."""
        limits = self._limits
        if self.count >= limits.connections_max:
            return f"the broker has max.connections = {limits.connections_max} connections: raise it or close some"
        present = self._per_ip.get(ip, 0)
        allowed = limits.per_ip_overrides.get(ip, limits.connections_max_per_ip)
        if present >= allowed:
            return (
                f"{ip} has {present} connections and may have {allowed}: see max.connections.per.ip "
                "and max.connections.per.ip.overrides"
            )
        self._per_ip[ip] = present + 1
        self.count += 1
        return None

    def leave(self, ip: str) -> None:
        present = self._per_ip[ip]
        if present == 1:
            del self._per_ip[ip]
        else:
            self._per_ip[ip] = present - 1
        self.count -= 1
