"""What can be set on a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.client.config import ACKS_ALL, ProducerConfig
from tidelog.pipelines.options import OptionError, Options

if TYPE_CHECKING:
    from collections.abc import Mapping

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

_KNOWN: Final = ("topic", "delivery", "checkpointLocation", "includeHeaders")
_SPARKS_OWN: Final = ("path", "queryName", "truncate", "numRows")
_REFUSED: Final = {
    "transactional.id": "the sink names its transactions itself, by query, run and process",
    "transaction.two.phase.commit.enable": "the sink turns it on where it needs it",
    "enable.idempotence": "it is always on: without it a retry could store records twice",
}
_DEFAULTS: Final = {
    # As long as brokers allow: it has to last from a batch's first record to its commit.
    "transaction.timeout.ms": "900000",
    "linger.ms": "0",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    topic: str | None
    """For all rows; None: each row's column `topic` tells."""
    exactly_once: bool
    producer: ProducerConfig
    checkpoint: str | None
    """Where the streaming query keeps its own progress, if it was said by an option."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        options = Options(given, known=_KNOWN, ignored=_SPARKS_OWN)
        topic = options.text("topic")
        producer = options.client(ProducerConfig, defaults=_DEFAULTS, refused=_REFUSED)
        if producer.required_acks != ACKS_ALL:
            raise OptionError(f"option kafka.acks is all, not {producer.acks}: less would lose rows when a broker dies")
        return cls(
            topic=topic.strip() if topic and topic.strip() else None,
            exactly_once=options.choice("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE) == EXACTLY_ONCE,
            producer=producer,
            checkpoint=options.text("checkpointLocation"),
        )
