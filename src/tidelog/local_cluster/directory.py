"""The directory of a cluster on this machine: what lies where, and that one command at a time works on it.

cluster.json        what is known of the cluster
broker-N/           server.properties, broker.log, and the logs in data/
zookeeper/          ZooKeeper's servers, when they are ours
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.local_cluster.errors import LocalClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENVIRONMENT = "TIDELOG_CLUSTER_DIR"


def default_directory(environment: Mapping[str, str]) -> Path:
    """In the place for what programs of this user want to find again."""
    named = environment.get("XDG_STATE_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return home / "tidelog" / "cluster"


class ClusterDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.state_file = self.path / "cluster.json"
        self.zookeeper = self.path / "zookeeper"

    def broker(self, number: int) -> Path:
        return self.path / f"broker-{number}"

    def data(self, number: int) -> Path:
        return self.broker(number) / "data"

    def properties(self, number: int) -> Path:
        return self.broker(number) / "server.properties"

    def log(self, number: int) -> Path:
        return self.broker(number) / "broker.log"

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalClusterError(f"{self.path} cannot be made ({error.strerror}): name another directory") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """For as long as this lasts no other command changes the cluster."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LocalClusterError(f"{self.path} cannot be used ({error.strerror}): name another directory") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalClusterError(
                    f"another command is at work on the cluster in {self.path}: wait until it is done"
                ) from None
            yield
        finally:
            os.close(lock)
