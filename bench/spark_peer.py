"""Spark's own Kafka connector, fetched as the peer tests fetch it: it needs Java and Maven."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_PEERS = Path(__file__).parent.parent / "tests" / "peers"


class NoConnectorError(RuntimeError):
    """It could not be had. The message says why."""


def connector_jars() -> str:
    """Its jars, as the setting `spark.jars` wants them."""
    sys.path.insert(0, str(_PEERS))
    try:
        directory: Path = importlib.import_module("peer_setup").spark_connector()
    except (ImportError, OSError, RuntimeError) as error:
        raise NoConnectorError(str(error)) from error
    return ",".join(sorted(str(jar) for jar in (directory / "lib").glob("*.jar")))
