"""The settings that pipelines run well with. Pure: from a machine's cores to Spark's keys and Java's options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LOCAL_MASTER: Final = "local[*,4]"
"""All cores, and a task may fail three times: with plain local[*] it must not fail once."""

SHUFFLE_PARTITIONS_MAX: Final = 8

EVERYWHERE: Final = {
    # With the default, batches that Spark hands to Python are measured again for each row that has headers.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.python.filterPushdown.enabled": "true",
    # The default is a type of old that other readers of Parquet warn of.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

ON_THIS_MACHINE: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Four times as fast on local files. Its check that a file is new has a gap: checkpoints need a lock of their own.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.daemon.module": "tidelog.pipelines.session.worker_daemon",
}

SHORT_RUN: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The quick compiler and the simplest collector: ready in half the time, a third as fast once warm."""

QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr", "-Dderby.stream.error.file=/dev/null")
"""Java's warnings go to standard output otherwise, among the results. Derby, which comes with Spark, leaves a log in
whatever directory it is used from."""


def is_local(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def defaults(master: str, cores: int, python: str) -> dict[str, str]:
    """What is set unless the user sets it."""
    if not is_local(master):
        return dict(EVERYWHERE)
    return {
        **EVERYWHERE,
        **ON_THIS_MACHINE,
        "spark.sql.shuffle.partitions": str(min(local_cores(master, cores), SHUFFLE_PARTITIONS_MAX)),
        "spark.pyspark.python": python,
    }


def local_cores(master: str, cores: int) -> int:
    """How many of the machine's cores `local[...]` takes."""
    match = re.fullmatch(r"local\[(\*|\d+).*\]", master)
    if match is None:
        return 1
    return cores if match[1] == "*" else max(int(match[1]), 1)


def log_options(configuration: Path, log_file: Path | None) -> list[str]:
    """Spark's own log: to a file, or of it only errors to standard error."""
    options = [f"-Dlog4j2.configurationFile={configuration.as_uri()}"]
    return options if log_file is None else [*options, f"-Dtidelog.log.file={log_file}"]


def java_options(short_run: bool, archive: Sequence[str], log: Sequence[str]) -> str:
    return " ".join([*QUIET, *(SHORT_RUN if short_run else ()), *archive, *log])


def merged(defaults: Mapping[str, str], chosen: Mapping[str, object]) -> dict[str, str]:
    """The user's settings win, written as Spark writes them."""
    return {**defaults, **{key: _text(value) for key, value in chosen.items()}}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
