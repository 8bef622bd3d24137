"""A Spark session that has Spark's own Kafka connector beside our source and sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from peer_setup import spark_connector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark_with_connector() -> Iterator[SparkSession]:
    """One for all tests of a module."""
    from spark_fixtures import start_session  # a plugin of other tests, which pytest wants to import itself

    jars = sorted(str(jar) for jar in (spark_connector() / "lib").glob("*.jar"))
    session = start_session({"spark.jars": ",".join(jars)})
    yield session
    session.stop()
