"""Builds the session. Everything the user sets wins over what is set here."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.pipelines.session.class_archive import archive_options
from tidelog.pipelines.session.errors import SessionError
from tidelog.pipelines.session.interrupting import ended_if_interrupted
from tidelog.pipelines.session.java import APART, OUTPUT, find_java, shim
from tidelog.pipelines.session.nursery_process import nursery
from tidelog.pipelines.session.places import cache_directory, spark_home
from tidelog.pipelines.session.python import NURSERY, python_shim
from tidelog.pipelines.session.settings import (
    LOCAL_MASTER,
    SHORT_RUN,
    defaults,
    is_local,
    java_options,
    log_options,
    merged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_HERE: Final = Path(__file__).parent
_RUNS_IN_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
_PYTHON: Final = "spark.pyspark.python"
_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_QUICK_LAUNCHER: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


def build_session(
    master: str | None = None,
    name: str = "tidelog",
    conf: Mapping[str, object] = {},
    *,
    short_run: bool = False,
    log_file: Path | None = None,
    apart: bool = False,
) -> SparkSession:
    """The session of this process; one that exists already is given as it is, with `conf` where Spark allows it.

    `master` defaults to all cores of this machine. `short_run` starts sooner and computes slower. Spark's own log goes
    to `log_file`, and what its processes print beside that; without one it is left out. With `apart`, signals to the
    group of this process do not reach Spark's: whoever has to be asked to end can then end Spark in order.
    SessionError says what is missing.
    """
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only now we know that it is there

    _tell_errors_once()
    in_submit = _RUNS_IN_SPARK_SUBMIT in os.environ
    chosen = master or str(conf.get("spark.master", "" if in_submit else LOCAL_MASTER))
    settings = merged(defaults(chosen, os.cpu_count() or 1, _python()), conf)
    builder = SparkSession.builder.appName(name)
    if chosen:
        settings["spark.master"] = chosen
    # Spark asks the environment, and would take whatever python3 comes first there: for tasks, and for what the driver
    # plans. On a cluster nobody but the user knows where Python is.
    if _PYTHON in conf:
        os.environ["PYSPARK_PYTHON"] = settings[_PYTHON]
    elif is_local(chosen):
        os.environ.setdefault("PYSPARK_PYTHON", settings[_PYTHON])
    with _java(settings, short_run, log_file, apart) if not in_submit else contextlib.nullcontext():
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            with ended_if_interrupted():
                return builder.getOrCreate()
        except Exception as error:
            if "JAVA_GATEWAY_EXITED" in str(error):
                where = "above" if log_file is None else f"in {output_file(log_file)}"
                raise SessionError(f"Java ended before Spark was up; what it printed {where} says why") from error
            raise


def _tell_errors_once() -> None:
    """PySpark prints each error of an analysis, with all of Java's frames, before it raises it."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - only now we know that it is there

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def require_spark() -> None:
    """SessionError says how to get it."""
    if find_spec("pyspark") is None:
        raise SessionError("pipelines need PySpark: pip install 'tidelog[spark]'")


@contextlib.contextmanager
def _java(settings: dict[str, str], short_run: bool, log_file: Path | None, apart: bool) -> Iterator[None]:
    """The environment in which Spark starts the right Java, and that Java's options among the settings."""
    java = find_java(os.environ)
    cache = cache_directory(os.environ)
    archive = archive_options(cache, java, spark_home() / "jars", SHORT_RUN if short_run else ())
    settings.setdefault(
        _JAVA_OPTIONS, java_options(short_run, archive, log_options(_HERE / _log_configuration(log_file), log_file))
    )
    changed = {
        "JAVA_HOME": str(shim(java, cache)),
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS") or _QUICK_LAUNCHER,
        OUTPUT: "" if log_file is None else str(output_file(log_file)),
        APART: "yes" if apart else "",
        NURSERY: _nursery(settings, apart) or "",
    }
    before = {key: os.environ.get(key) for key in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _nursery(settings: Mapping[str, str], apart: bool) -> str | None:
    """For the Java that is about to start, if that starts Python as we have it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it is known by now that it is there

    python = _python()
    ours = settings.get(_PYTHON) == os.environ.get("PYSPARK_PYTHON") == python != sys.executable
    return nursery(python, apart=apart) if ours and SparkSession.getActiveSession() is None else None


def output_file(log_file: Path) -> Path:
    """What Spark's processes print: their log is not all they have to say."""
    return log_file.with_suffix(".out")


def _log_configuration(log_file: Path | None) -> str:
    return "log-to-stderr.properties" if log_file is None else "log-to-file.properties"


def _python() -> str:
    return python_shim(sys.executable, cache_directory(os.environ), spark_home())
