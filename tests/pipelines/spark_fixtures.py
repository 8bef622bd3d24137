"""Spark sessions for tests: `pytest_plugins = ["spark_fixtures"]`, then ask for `spark`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines.session.session import build_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

MASTER = "local[2,2]"
"""Two tasks at a time, of which each may fail once."""


def start_session(conf: Mapping[str, object] = {}) -> SparkSession:
    """With the settings that pipelines run with. It must be stopped before another one is started."""
    settings = {"spark.ui.showConsoleProgress": False, "spark.sql.session.timeZone": "UTC", **conf}
    return build_session(MASTER, "tests", settings, short_run=True)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a module."""
    session = start_session()
    yield session
    session.stop()
