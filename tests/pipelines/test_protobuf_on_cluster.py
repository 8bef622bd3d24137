"""Protobuf on a standalone Spark cluster, whose workers have neither the generated module nor the descriptors."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import protobuf_orders
import pytest

from tidelog.client.blocking import Admin, Consumer, Producer
from tidelog.pipelines import protobuf
from tidelog.pipelines.decoding.protobuf_messages import message_class, with_message
from tidelog.testing.spark_cluster import SparkCluster
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.testing import StartBroker

pytestmark = pytest.mark.timeout(900)

WITHIN_S = 700.0
"""For hanging, not for slowness."""

PIPELINE = """
name: gifts
sources:
  orders:
    topic: orders
    value: {format: protobuf, message: "orders_here_pb2:Order"}
sinks:
  gifts:
    sql: SELECT id, kind, note FROM orders WHERE kind = 'GIFT'
    topic: gifts
    value: {format: protobuf, message: shop.Order, descriptors: shop.desc}
"""


def test_a_cluster_reads_and_writes_protobuf(fresh_broker: StartBroker, tmp_path: Path) -> None:
    bootstrap = fresh_broker().bootstrap
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "gifts.yaml").write_text(PIPELINE)
    protobuf_orders.module(beside / "orders_here_pb2.py")
    protobuf_orders.descriptors(beside / "shop.desc")
    order = message_class(with_message(protobuf("shop.Order", descriptors="shop.desc"), beside))
    with Admin(bootstrap) as admin:
        for topic in ("orders", "gifts"):
            admin.create_topic(topic)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send("orders", order(id=number, kind=number % 2).SerializeToString())
    with SparkCluster(tmp_path / "spark", workers=1) as spark:
        command = [sys.executable, "-m", "tidelog", "pipeline", "once", str(beside / "gifts.yaml")]
        command += ["--master", spark.master, "--bootstrap", bootstrap, "--dir", str(tmp_path / "state")]
        for key, value in {**spark.conf, "spark.sql.shuffle.partitions": "1"}.items():
            command += ["--conf", f"{key}={value}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    gifts: list[Any] = []
    with Consumer[bytes, bytes](bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({TopicPartition("gifts", 0): 0})
        while len(gifts) < 5:
            gifts += [order.FromString(record.value) for record in consumer.poll(1.0)]
    assert [(each.id, each.kind) for each in gifts] == [(number, 1) for number in range(1, 10, 2)]
