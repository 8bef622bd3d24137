"""Where a broker's properties come from: a file, then KAFKA_ environment variables, then --set; later ones win.

An environment variable is named as in Kafka's container images: the key in capitals after KAFKA_, with _ for a dot,
__ for an underscore and ___ for a dash, so that KAFKA_LOG_RETENTION_MS is log.retention.ms.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.config.definition import ConfigError
from tidelog.config.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIX = "KAFKA_"
_UNDERSCORES = re.compile("_+")
_MEANINGS = {"_": ".", "__": "_", "___": "-"}

_NOT_CONFIGURATION = re.compile(
    # What start scripts and images set for themselves, and what Kubernetes sets for a service called kafka.
    r"KAFKA_(HEAP_OPTS|OPTS|HOME|VERSION|DEBUG|CLASSPATH|MODE|CLUSTER_ID|LOG4J.*|JMX_.*|JVM_.*|GC_LOG_OPTS|"
    r"TOOLS_LOG4J.*|SERVICE_.*|PORT|PORT_[0-9].*|CFG_FILE|CONFIG_FILE|SCALA_VERSION|USER|GROUP)\Z"
)


def load_properties(
    file: str | Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
) -> dict[str, str]:
    """All sources together. Reads `file` and nothing else; the environment is what the caller gives."""
    properties = read_properties_file(file) if file is not None else {}
    properties.update(properties_from_environment(environment or {}))
    properties.update(properties_from_assignments(assignments))
    return properties


def read_properties_file(path: str | Path) -> dict[str, str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"Configuration file {path} cannot be read: {error.strerror}."]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"Configuration file {path} is not UTF-8 text."]) from error
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from error


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        _key_of(name): value
        for name, value in environment.items()
        if name.startswith(_PREFIX) and name != _PREFIX and not _NOT_CONFIGURATION.match(name)
    }


def _key_of(name: str) -> str:
    return _UNDERSCORES.sub(lambda run: _MEANINGS.get(run[0], run[0]), name.removeprefix(_PREFIX).lower())


def properties_from_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """From `key=value` texts, as given with --set."""
    properties = {}
    problems = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if equals and key.strip():
            properties[key.strip()] = value.strip()
        else:
            problems.append(f"--set {assignment!r} must be key=value, for example --set num.partitions=3.")
    if problems:
        raise ConfigError(problems)
    return properties
