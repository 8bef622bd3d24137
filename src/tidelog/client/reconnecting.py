"""How soon an address that failed is tried again. No I/O: the caller brings the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.backoff import Backoff
    from tidelog.net.address import Address


class _Failures(NamedTuple):
    times: int
    not_before_s: float


class ReconnectPace:
    """Each address by itself: one broker that is down must not keep the client from the others."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures: dict[Address, _Failures] = {}

    def wait_s(self, address: Address, now_s: float) -> float:
        """How long it is still to be left alone."""
        failures = self._failures.get(address)
        return 0.0 if failures is None else max(0.0, failures.not_before_s - now_s)

    def ordered(self, addresses: Iterable[Address], now_s: float) -> list[Address]:
        """Those to be tried first in front; equals stay as they were."""
        return sorted(addresses, key=lambda address: self.wait_s(address, now_s))

    def failed(self, address: Address, now_s: float, chance: float | None = None) -> None:
        """`chance` in [0, 1) replaces the dice."""
        before = self._failures.get(address)
        times = 0 if before is None else before.times
        self._failures[address] = _Failures(times + 1, now_s + self._backoff.delay_s(times, chance))

    def succeeded(self, address: Address) -> None:
        self._failures.pop(address, None)
