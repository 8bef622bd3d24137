"""What every SASL exchange looks like to the side that wants to be believed."""

from __future__ import annotations

from typing import Protocol


class ExchangeFailed(Exception):  # noqa: N818 - named for what happened
    """The other side does not keep to the exchange, or has not proved that it knows the password."""


class Exchange(Protocol):
    """Tokens go back and forth, ours first, until `done`. An exchange serves once."""

    @property
    def done(self) -> bool: ...

    def begin(self) -> bytes:
        """The first token."""

    def answer(self, challenge: bytes) -> bytes:
        """What to send for the other side's token, unless it leaves the exchange `done`: then nothing is sent."""
