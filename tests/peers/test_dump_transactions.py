"""Kafka's own dump tool reads what transactions leave on disk: markers, `.txnindex`, and producers with open ones."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from apache_kafka import java_command
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk
from transaction_cases import ABORT, COMMIT, end, write

from tidelog.config.topic import TopicConfig
from tidelog.storage.fs import RealFilesystem

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peers
pytest_plugins = ["peer_fixtures"]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMP_TIMEOUT_S = 120


def dump(*files: Path) -> str:
    command = java_command(DUMP, ["--files", ",".join(map(str, files))])
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_TIMEOUT_S, check=True)
    return done.stdout


def test_kafka_reads_what_transactions_leave(tmp_path: Path) -> None:
    disk = Disk(RealFilesystem(), str(tmp_path))
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    write(log, 7, 0, 2)
    write(log, 8, 0, epoch=3)
    end(log, 7, ABORT, epoch=1, version=2)
    write(log, 7, 0, epoch=1)
    end(log, 7, COMMIT, epoch=2, version=2)
    log.roll(NOW_MS)
    store.close()
    stem = tmp_path / str(TP) / f"{0:020d}"

    batches = dump(stem.with_suffix(".log"))
    assert batches.count("isvalid: true") == 5
    markers = re.findall(r"baseOffset: (\d+) .* producerEpoch: (\d+) .* isControl: true", batches)
    assert markers == [("3", "1"), ("5", "2")]
    index = dump(stem.with_suffix(".txnindex"))
    assert "version: 0 producerId: 7 firstOffset: 0 lastOffset: 3 lastStableOffset: 2\n" in index
    snapshot = dump(tmp_path / str(TP) / f"{6:020d}.snapshot")
    open_ones = re.findall(r"producerId: (\d+) .* currentTxnFirstOffset: (\S+)", snapshot)
    assert open_ones == [("7", "OptionalLong.empty"), ("8", "OptionalLong[2]")]
