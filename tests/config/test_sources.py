"""File, environment and --set, and which of them wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.config.definition import ConfigError
from tidelog.config.sources import (
    load_properties,
    properties_from_assignments,
    properties_from_environment,
    read_properties_file,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_TIDELOG_FSYNC_BEFORE_ACK", "tidelog.fsync.before.ack"),
        ("KAFKA_SOME__KEY_MS", "some_key.ms"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___256_SASL_JAAS_CONFIG",
         "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"),
    ],
)  # fmt: skip
def test_environment_names(variable: str, key: str) -> None:
    assert properties_from_environment({variable: "v"}) == {key: "v"}


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_SERVICE_HOST",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_",
        "PATH",
        "XKAFKA_LOG_DIRS",
    ],
)
def test_environment_names_that_are_no_configuration(variable: str) -> None:
    assert properties_from_environment({variable: "v"}) == {}


def test_assignments() -> None:
    assert properties_from_assignments(["a=b", " c = d=e ", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(ConfigError) as refusal:
        properties_from_assignments(["a=b", "nothing", "=x"])
    assert len(refusal.value.problems) == 2
    assert "must be key=value" in refusal.value.problems[0]


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("a=file\nb=file\nc=file\n")
    properties = load_properties(
        file, environment={"KAFKA_B": "environment", "KAFKA_C": "environment"}, assignments=["c=set"]
    )
    assert properties == {"a": "file", "b": "environment", "c": "set"}
    assert load_properties() == {}


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere cannot be read: No such file"):
        read_properties_file(tmp_path / "nowhere")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_properties_file(binary)
    broken = tmp_path / "broken"
    broken.write_text("a=\\u1")
    with pytest.raises(ConfigError, match=r"broken: Line 1:"):
        read_properties_file(broken)
