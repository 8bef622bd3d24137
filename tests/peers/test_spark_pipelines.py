"""Spark's own runner of Declarative Pipelines runs the example with our source and sink, as it comes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from spark_peers import PATIENCE_S, consumed_rows

if TYPE_CHECKING:
    from tidelog.testing import StartBroker

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark-pipelines"
WITHIN_S = 500.0
"""For hanging, not for slowness."""
# Quick to start, as the run is short.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def order(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce("orders", json.dumps({"id": f"o{number}", "amount": number}), str(number % 7))
    assert producer.flush(PATIENCE_S) == 0


def run(directory: Path) -> None:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": JAVA,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["spark-pipelines", "run"],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "Run is COMPLETED" in done.stdout


def test_each_large_order_arrives_once(fresh_broker: StartBroker, tmp_path: Path) -> None:
    bootstrap = fresh_broker().bootstrap
    directory = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, directory)
    specification = directory / "spark-pipeline.yml"
    text = specification.read_text().replace("localhost:9092", bootstrap)
    specification.write_text(text.replace("file:///tmp/large-orders", (tmp_path / "state").as_uri()))

    order(bootstrap, range(150))
    run(directory)
    order(bootstrap, range(150, 200))
    run(directory)

    found = [json.loads(row.value or b"") for row in consumed_rows(bootstrap, {"large-orders": 1})]
    assert sorted(found, key=lambda each: each["amount"]) == [{"id": f"o{n}", "amount": n} for n in range(100, 200)]
