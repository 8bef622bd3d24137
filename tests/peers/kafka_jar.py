"""Fetches Kafka's own jars from Maven Central, once, for tests that hold Tidelog against them.

Every jar that carries message definitions has them as JSON with comments under `common/message/`:
`kafka-clients` all requests and responses, `kafka-group-coordinator` and `kafka-transaction-coordinator` the records of
`__consumer_offsets` and `__transaction_state`. The inter-broker requests of ZooKeeper times are empty shells since 4.0,
so those come from 3.9.1, the last line that spoke them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[2] / ".cache" / "peers"
DOWNLOAD_TIMEOUT_S = 240

_COMMENT_LINE = re.compile(r"^\s*//.*$", re.MULTILINE)


def kafka_jar(artifact: str, version: str) -> Path:
    """The jar `org.apache.kafka:artifact:version`, downloaded unless the cache has it."""
    jar = CACHE / f"{artifact}-{version}.jar"
    if not jar.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Into a directory of its own and then renamed: a run that is cut off or runs twice leaves no half jar.
        download = Path(tempfile.mkdtemp(prefix="download-", dir=CACHE))
        try:
            _copy_from_central(f"org.apache.kafka:{artifact}:{version}", download)
            (download / jar.name).replace(jar)
        finally:
            shutil.rmtree(download)
    return jar


def kafka_clients_jar() -> Path:
    return kafka_jar("kafka-clients", "4.3.0")


@cache
def message_definitions(jar: Path) -> dict[str, dict[str, Any]]:
    """Every message definition in the jar, by message name."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        texts = [_COMMENT_LINE.sub("", archive.read(name).decode()) for name in names]
    return {definition["name"]: definition for definition in map(json.loads, texts)}


def _copy_from_central(artifact: str, directory: Path) -> None:
    goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    # Away from any pom.xml, which would change what the plugin does.
    run = subprocess.run(
        ["mvn", "--quiet", "--batch-mode", *goal],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"Maven could not fetch {artifact}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
