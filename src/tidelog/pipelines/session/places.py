"""Where sessions keep what can be made again: Java's shim and archives of loaded classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def cache_directory(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CACHE_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".cache"
    return home / "tidelog" / "spark"


def spark_home() -> Path:
    """Where the Spark is that sessions start."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - PySpark's own answer, with SPARK_HOME

    return Path(_find_spark_home())
