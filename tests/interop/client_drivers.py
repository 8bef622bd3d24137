"""The Kafka clients under test behind one small face: write records, read records, whatever the library calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

READ_WITHIN_S = 60.0

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Got:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Writing:
    """How records are to be written."""

    codec: str = "none"
    acks: str = "all"
    idempotent: bool = False
    partition: int = 0
    max_bytes: int = 1_000_000


DEFAULT_WRITING = Writing()


class ClientDriver(Protocol):
    @property
    def name(self) -> str: ...

    def can_write(self, record: Sent) -> bool:
        """Whether this client's own interface can express the record."""

    def write(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing = DEFAULT_WRITING
    ) -> list[int] | None:
        """Write the records in order and wait until they are delivered; gives their offsets if the client tells."""

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Got]:
        """The first `count` records from offset `start`."""


class ReadDeadline:
    """Ends a reading loop that gets nothing any more, with a message that says how far it came."""

    def __init__(self, client: str, wanted: int) -> None:
        self._client = client
        self._wanted = wanted
        self._clock = SystemClock()
        self._deadline = self._clock.monotonic() + READ_WITHIN_S

    def check(self, came: int) -> None:
        if self._clock.monotonic() > self._deadline:
            raise TimeoutError(
                f"{self._client} read {came} of {self._wanted} records within {READ_WITHIN_S:g} s and no more"
            )
