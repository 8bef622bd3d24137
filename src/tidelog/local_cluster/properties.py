"""The properties of the brokers of a cluster on this machine. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.config.definition import ConfigError
from tidelog.local_cluster.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidelog.local_cluster.state import KnownBroker

OURS = {
    "broker.id": "brokers are numbered from 1",
    "node.id": "brokers are numbered from 1",
    "listeners": "each broker gets a port of its own",
    "log.dir": "each broker has a directory below that of the cluster",
    "log.dirs": "each broker has a directory below that of the cluster",
    "zookeeper.connect": "use --zookeeper",
    "broker.rack": "use --racks",
}
"""What is different for each broker, or said by an option of its own, and why it cannot be set for all of them."""

_SPECIAL = re.compile(r"[\\\n\r\t\f]|^ ")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", " ": "\\ "}


def check_settings(settings: Mapping[str, str]) -> None:
    problems = [f"{key} cannot be set for all brokers of a cluster: {OURS[key]}." for key in settings if key in OURS]
    if problems:
        raise ConfigError(problems)


def broker_properties(
    broker: KnownBroker, brokers: int, data_dir: Path, connect: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """Replicated as far as there are brokers for it, so that one of them may fail; else what the user has set."""
    replicas = min(3, brokers)
    in_sync = max(1, replicas - 1)
    properties = {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        # On one machine a broker is dead or alive, not far away; and people wait for it.
        "zookeeper.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "10000",
        "group.initial.rebalance.delay.ms": "0",
        "controlled.shutdown.retry.backoff.ms": "500",
        **settings,
        "broker.id": str(broker.id),
        "listeners": f"PLAINTEXT://{HOST}:{broker.port}",
        "log.dirs": str(data_dir),
        "zookeeper.connect": connect,
    }
    if broker.rack is not None:
        properties["broker.rack"] = broker.rack
    return properties


def render(properties: Mapping[str, str]) -> str:
    """A file for `tidelog broker --config`."""
    lines = [f"{key}={_SPECIAL.sub(lambda found: _ESCAPES[found[0]], value)}\n" for key, value in properties.items()]
    return "".join(
        ["# Written anew at each start. Use `tidelog cluster start --set key=value` to change it.\n", *lines]
    )
