"""How much one connection may make the broker hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    frame_bytes_max: int = 100 << 20
    """Kafka's `socket.request.max.bytes`: a longer frame closes the connection before any memory is taken for it."""

    output_bytes_max: int = 1 << 20
    """Unsent reply bytes above which no further frame of the connection is handled."""

    parked_max: int = 256
    """Replies outstanding above which no further frame of the connection is handled."""

    frames_per_turn: int = 64
    """Pipelined frames handled before other connections get their turn."""

    idle_timeout_s: float | None = 600.0
    """Kafka's `connections.max.idle.ms`: closed after this long without a byte moving. None: never."""

    linger_s: float = 1.0
    """How long a finished connection waits for its peer to close, so that unread requests do not reset it."""
