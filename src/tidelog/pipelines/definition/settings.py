"""What holds for a pipeline as a whole."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.client.config import ConsumerConfig, ProducerConfig
from tidelog.pipelines.definition.durations import seconds
from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.options import known_settings

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Settings:
    """In Python: `settings = Settings(name="sales", trigger="2 seconds")`, anywhere in the module."""

    name: str | None = None
    """By default that of the file."""
    bootstrap: str | None = None
    """Brokers; by default those of --bootstrap, or localhost:9092."""
    trigger: str | None = None
    """How often a batch starts, such as '2 seconds'; by default as soon as there are rows."""
    dead_letters: str | None = None
    """The topic for records that cannot be read; by default `<name>.dead-letters`."""
    checkpoint: str | None = None
    """Where checkpoints are kept when not with the pipeline's state: a directory that all of a cluster reaches."""
    kafka: dict[str, Any] = field(default_factory=dict)
    """Settings of clients, by Kafka's names, such as security.protocol. Consumers and producers get those they have."""
    conf: dict[str, Any] = field(default_factory=dict)
    """Settings of Spark."""

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.trigger is not None:
            seconds(self.trigger, "the trigger")
        known = known_settings(ConsumerConfig) | known_settings(ProducerConfig)
        for key in self.kafka:
            if key.startswith("kafka."):
                raise PipelineError(f"kafka: {key} is written without 'kafka.' here")
            if key.lower() not in known:
                # There are too many to name them all.
                near = difflib.get_close_matches(key.lower(), known, n=1)
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise PipelineError(f"kafka: neither consumers nor producers have a setting {key!r}{hint}")


def check_name(name: str) -> None:
    """It becomes a directory, and part of the names of topics and groups."""
    if not _NAME.fullmatch(name):
        raise PipelineError(
            "names of pipelines and queries are up to 100 ASCII letters, digits, dots, dashes and underscores, not "
            f"{name!r}"
        )
