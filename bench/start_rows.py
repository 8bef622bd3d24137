"""Rows about a broker's start and size: empty, and with very many partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import topics, work_dirs
from bench.process_facts import resident_bytes
from bench.results import Row, below
from tidelog.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.plan import Plan

_MB = 1e6
_TOPIC_PARTITIONS = 1000
_READY_WITHIN_S = 120.0


def start(plan: Plan) -> Iterator[Row]:
    seconds: list[float] = []
    resident = own = 0
    with work_dirs.work_dir(work_dirs.on_disk()) as path:
        broker = BrokerProcess(path / "data")
        for _ in range(plan.trials):
            seconds.append(_seconds_to_start(broker))
            resident = resident_bytes(broker.pid)
            own = broker.resident_bytes()
            broker.close()
    yield Row(
        "start to ready", min(seconds), "s", below(0.7), note=f"best of {len(seconds)}, worst {max(seconds):.2f} s"
    )
    yield Row("idle memory", resident / _MB, "MB", below(80), note=f"resident; {own / _MB:.0f} MB without mapped files")


def partitions(plan: Plan) -> Iterator[Row]:
    with work_dirs.work_dir(work_dirs.on_disk()) as path:
        broker = BrokerProcess(path / "data", ready_within_s=_READY_WITHIN_S, stopped_within_s=_READY_WITHIN_S)
        broker.start()
        began = time.perf_counter()
        count = 0
        while count < plan.partitions:
            some = min(_TOPIC_PARTITIONS, plan.partitions - count)
            topics.create(broker.port, f"bench-{count}", some)
            count += some
        created_s = time.perf_counter() - began
        began = time.perf_counter()
        broker.close()
        stopped_s = time.perf_counter() - began
        opened_s = _seconds_to_start(broker)
        resident, files = resident_bytes(broker.pid), broker.open_files()
        broker.close()
    name = f"{count:,} empty partitions"
    note = f"start to ready after a clean stop; created in {created_s:.1f} s, stopped in {stopped_s:.1f} s"
    yield Row(f"{name}: open", opened_s, "s", below(5), note=note)
    yield Row(f"{name}: memory", resident / _MB, "MB", below(400), note=f"resident; {files} open files")


def _seconds_to_start(broker: BrokerProcess) -> float:
    began = time.perf_counter()
    broker.start()
    return time.perf_counter() - began
