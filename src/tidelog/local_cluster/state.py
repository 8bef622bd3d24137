"""What is known of a cluster on this machine between two commands: its parts, their ports and their processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidelog.local_cluster.errors import LocalClusterError
from tidelog.local_cluster.ports import HOST
from tidelog.local_cluster.process import ProcessMark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMAT = 1


@dataclass(frozen=True, slots=True)
class KnownBroker:
    id: int
    port: int
    rack: str | None = None
    process: ProcessMark | None = None
    """The one that was started last; None when it was ended by us."""
    ended: str = "never started"
    """How it ended, when there is no process."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive


@dataclass(frozen=True, slots=True)
class KnownCluster:
    zookeeper: str
    """Where ZooKeeper is, when it is not ours."""
    zookeeper_servers: int
    """How many are ours; 0 when none is."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of all brokers, as the user gave them."""
    brokers: tuple[KnownBroker, ...] = ()

    @property
    def running(self) -> list[KnownBroker]:
        return [broker for broker in self.brokers if broker.alive]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def broker(self, number: int) -> KnownBroker:
        for broker in self.brokers:
            if broker.id == number:
                return broker
        known = ", ".join(str(broker.id) for broker in self.brokers)
        raise LocalClusterError(f"there is no broker {number}: there are {known}")

    def with_broker(self, changed: KnownBroker) -> KnownCluster:
        return self.with_brokers(changed if broker.id == changed.id else broker for broker in self.brokers)

    def with_brokers(self, brokers: Iterable[KnownBroker]) -> KnownCluster:
        return replace(self, brokers=tuple(brokers))


def load(path: Path) -> KnownCluster | None:
    """None when there is no such file."""
    try:
        return _decode(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LocalClusterError(
            f"{path} cannot be read ({type(error).__name__}: {error}): end the cluster's processes by hand and remove "
            f"{path.parent}, or use another directory"
        ) from None


def save(path: Path, cluster: KnownCluster) -> None:
    """At once or not at all: a command that is interrupted must not leave half of it."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(cluster)}, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _decode(found: Any) -> KnownCluster:
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']} instead of {FORMAT}")
    return KnownCluster(
        str(found["zookeeper"]),
        int(found["zookeeper_servers"]),
        {str(key): str(value) for key, value in found["settings"].items()},
        tuple(_decode_broker(broker) for broker in found["brokers"]),
    )


def _decode_broker(found: Any) -> KnownBroker:
    process = found["process"]
    return KnownBroker(
        int(found["id"]),
        int(found["port"]),
        None if found["rack"] is None else str(found["rack"]),
        None if process is None else ProcessMark(int(process[0]), str(process[1])),
        str(found["ended"]),
    )
