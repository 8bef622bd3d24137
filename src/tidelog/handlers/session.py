"""What is known of whoever is at the other end of a connection, from one request to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.security.broker_proof import Verifier


class Session:
    __slots__ = ("peer_broker", "verifier")

    def __init__(self) -> None:
        self.peer_broker: int | None = None
        """The broker of this cluster that opened the connection and has proved it; None for clients."""
        self.verifier: Verifier | None = None
        """While such a proof is going on."""
