"""The demo's pipeline on a standalone Spark cluster: a master and two workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tidelog.cli.demo_checks import checks, read_written
from tidelog.cli.demo_events import CLICKS, ORDERS
from tidelog.cli.demo_pipeline import FILE
from tidelog.cli.demo_shop import day
from tidelog.client.blocking import Admin, Producer
from tidelog.clock import SystemClock
from tidelog.testing.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.cli.demo_shop import Day
    from tidelog.testing import StartBroker

pytestmark = pytest.mark.timeout(900)

WITHIN_S = 700.0
"""For hanging, not for slowness."""


def send(bootstrap: str, shop: Day) -> None:
    with Admin(bootstrap) as admin:
        for topic in (ORDERS, CLICKS):
            admin.create_topic(topic, partitions=3)
    with Producer(bootstrap) as producer:
        for event in shop.on_time:
            producer.send(event.topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms)


def test_a_cluster_runs_the_pipeline(fresh_broker: StartBroker, tmp_path: Path) -> None:
    bootstrap = fresh_broker().bootstrap
    shop = day(4000, 7, SystemClock().now_ms())  # what is older than a week would be deleted
    send(bootstrap, shop)
    with SparkCluster(tmp_path / "spark", workers=2) as spark:
        command = [sys.executable, "-m", "tidelog", "pipeline", "once", str(FILE), "--master", spark.master]
        command += ["--bootstrap", bootstrap, "--dir", str(tmp_path / "state")]
        for key, value in {**spark.conf, "spark.sql.shuffle.partitions": "2"}.items():
            command += ["--conf", f"{key}={value}"]
        done = subprocess.run(
            command,
            env={**os.environ, "SHOP_DIR": str(tmp_path / "shop")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        status = spark.status()
    assert status is not None
    (application,) = status["completedapps"]
    assert application["name"] == "tidelog shop"
    written = asyncio.run(read_written(bootstrap, tmp_path / "shop" / "purchases"))
    assert [check for check in checks(shop.ledger, written) if not check.exact] == []
    assert len(written.purchases) == len(shop.ledger.bought) > 900
