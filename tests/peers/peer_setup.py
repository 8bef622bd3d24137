"""Builds each foreign client once, into `.cache/peers/<name>-<hash of what it is built from>`.

A build happens in a directory of its own and is renamed into place when it is whole, under a lock that parallel test
workers share: whoever comes second finds it done. Run as a program it builds everything, so that downloads do not count
against the first test's time limit.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SOURCES = Path(__file__).resolve().parent
CACHE = SOURCES.parents[1] / ".cache" / "peers"
BUILD_TIMEOUT_S = 1200
OLDEST_GO = (1, 21)
NOT_SOURCE = {"node_modules", "target"}

DEBIAN_PACKAGES = {
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "node": "nodejs",
    "npm": "npm",
}


class MissingToolError(RuntimeError):
    """A program that the peers are built with is not on PATH."""


class BuildFailedError(RuntimeError):
    """A peer's own build tool refused; the message carries what it said."""


def tool(name: str) -> str:
    """The full path of a program, or an error that says which package has it."""
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(
            f"{name} is not on PATH: install it, on Debian with `apt install {DEBIAN_PACKAGES[name]}`"
        )
    return found


def java_driver() -> Path:
    """A directory with `driver.jar` and its libraries in `lib/`."""
    return _prepared("java", _build_with_maven)


def kafka_broker() -> Path:
    """A directory with the jars of Apache Kafka's broker and tools in `lib/`."""
    return _prepared("kafka-server", _build_with_maven)


def kafka_of_zookeeper() -> Path:
    """A directory with the jars of an older Apache Kafka, whose tools read and write ZooKeeper, in `lib/`."""
    return _prepared("kafka-zookeeper", _build_with_maven)


def spark_connector() -> Path:
    """A directory with the jars of Spark's own Kafka connector, which PySpark does not bring, in `lib/`."""
    return _prepared("spark-kafka", _build_with_maven)


def go_driver() -> Path:
    """A directory with the program `driver`."""
    return _prepared("go", _build_with_go)


def js_driver() -> Path:
    """A directory with `driver.js` and its `node_modules`."""
    return _prepared("js", _build_with_npm)


def _prepared(name: str, build: Callable[[Path], Path]) -> Path:
    source = SOURCES / name
    finished = CACHE / f"{name}-{_fingerprint(source)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / f"{name}.lock"):
        if not finished.exists():
            with tempfile.TemporaryDirectory(prefix=f"{name}-building-", dir=CACHE) as scratch:
                work = Path(scratch) / name
                shutil.copytree(source, work, ignore=shutil.ignore_patterns(*NOT_SOURCE))
                build(work).rename(finished)
    return finished


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not NOT_SOURCE.intersection(relative.parts):
            content = path.read_bytes()
            digest.update(f"{relative.as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_with_maven(work: Path) -> Path:
    tool("javac")
    _run([tool("mvn"), "--batch-mode", "--no-transfer-progress", "--quiet", "package"], work)
    return work / "target"


def _build_with_go(work: Path) -> Path:
    _refuse_old_go()
    _run(
        [tool("go"), "build", "-trimpath", "-o", "driver", "."], work, {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    )
    return work


def _refuse_old_go() -> None:
    """Since 1.21 go fetches the toolchain that go.mod asks for; an older one cannot even read the file."""
    version = subprocess.run(
        [tool("go"), "env", "GOVERSION"], capture_output=True, text=True, check=True
    ).stdout.strip()
    parts = re.match(r"go(\d+)\.(\d+)", version)
    if parts is not None and (int(parts[1]), int(parts[2])) < OLDEST_GO:
        raise MissingToolError(
            f"{version} is too old to build franz-go: install Go {'.'.join(map(str, OLDEST_GO))} or later"
        )


def _build_with_npm(work: Path) -> Path:
    tool("node")
    _run([tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], work)
    return work


def _run(command: Sequence[str], work: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=work,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailedError(f"`{' '.join(command)}` failed with {done.returncode}:\n{done.stdout[-4000:]}")


def main() -> None:
    for prepare in (java_driver, kafka_broker, kafka_of_zookeeper, spark_connector, go_driver, js_driver):
        sys.stdout.write(f"{prepare()}\n")


if __name__ == "__main__":
    main()
