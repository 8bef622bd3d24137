"""Rows by the raw-socket generator: tiny requests, produce and fetch, against the C peer and bare loopback."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench import frames, load, loopback, topics, work_dirs
from bench.checks import check_fetched, check_produced
from bench.peers import NO_FSYNC, CPeers, tidelog
from bench.results import Row, at_least, ratio_at_least
from bench.trials import Trial, best, measure
from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.plan import Plan
    from bench.results import Target
    from bench.trials import Peer
    from tidelog.testing.broker_process import BrokerProcess

CONNECTIONS = 50
IN_FLIGHT = 5
FETCHES_IN_FLIGHT = 5
CHUNK_BYTES = 1 << 20
FETCHED_BATCH_BYTES = 64 << 10
STORED_BYTES = 256 << 20
GROWING_BATCH_BYTES = 64 << 10
TOPIC = "bench"
_MB = 1e6

PRODUCE_TARGETS: dict[int, Target | None] = {
    16 << 10: None,
    64 << 10: ratio_at_least(0.75),
    1 << 20: ratio_at_least(0.9),
}


def tiny(plan: Plan) -> Iterator[Row]:
    place, peers = work_dirs.on_disk(), CPeers()
    with tidelog(place, {}) as broker:
        ours = partial(_ask_tiny, plan, broker)
        figures = best(plan.trials, ours, *peers.contestant(place, partial(_ask_tiny, plan)))
    yield _against_c(
        Row(f"tiny requests, {CONNECTIONS} connections", figures[0].rate, "/s", at_least(60_000)),
        figures,
        f"ApiVersions, one in flight each; {_cpu_text(figures, 1e6, 'us each')}",
        peers,
    )


def produce(plan: Plan) -> Iterator[Row]:
    place, pages = work_dirs.in_memory(6 * plan.bytes)
    work_dirs.warm(place, 3 * plan.bytes)
    with tidelog(place, NO_FSYNC) as broker:
        for batch_bytes, target in PRODUCE_TARGETS.items():
            yield _produce_row(plan, broker, place, batch_bytes, target, f"{pages}, reused pages")


def produce_growing(plan: Plan) -> Iterator[Row]:
    """A log that grows on a disk: the kernel finds new pages and writes old ones back, at its own pace."""
    place = work_dirs.on_disk()
    with tidelog(place, NO_FSYNC) as broker:
        yield _produce_row(plan, broker, place, GROWING_BATCH_BYTES, None, "disk, fresh pages")


def _produce_row(
    plan: Plan, broker: BrokerProcess, place: Path, batch_bytes: int, target: Target | None, pages: str
) -> Row:
    peers = CPeers()
    ours = partial(_produce_to_new_topic, plan, broker, batch_bytes)
    theirs = partial(_produce, plan, batch_bytes=batch_bytes)
    figures = best(plan.trials, ours, *peers.contestant(place, theirs))
    return _against_c(
        Row(f"produce {batch_bytes >> 10} KB batches, no fsync", figures[0].rate, "MB/s", target),
        figures,
        f"{pages}, {IN_FLIGHT} in flight; {_cpu_text(figures, 1e3, 's/GB')}",
        peers,
    )


def produce_synced(plan: Plan) -> Iterator[Row]:
    """The default: an acknowledged batch is on the disk. What the disk takes decides."""
    with tidelog(work_dirs.on_disk(), {}) as broker:
        for batch_bytes in PRODUCE_TARGETS:
            figures = best(plan.trials, partial(_produce_to_new_topic, plan, broker, batch_bytes))
            yield Row(
                f"produce {batch_bytes >> 10} KB batches, group commit",
                figures[0].rate,
                "MB/s",
                note=f"disk, fsync before the reply, {IN_FLIGHT} in flight; {_cpu_text(figures, 1e3, 's/GB')}",
            )


def fetch(plan: Plan) -> Iterator[Row]:
    place, pages = work_dirs.in_memory(6 * plan.bytes)
    peers = CPeers()
    with (
        work_dirs.work_dir(place) as path,
        tidelog(place, NO_FSYNC) as broker,
        topics.topic(broker.port, TOPIC),
    ):
        _store(broker)
        figures = best(
            plan.trials,
            partial(_fetch, plan, broker),
            partial(_loopback, plan, _file(path)),
            *peers.contestant(place, partial(_fetch_stored, plan)),
        )
    ours, bare, *theirs = figures
    note = f"{pages}, {FETCHES_IN_FLIGHT} in flight; {_cpu_text([ours, *theirs], 1e3, 's/GB')}"
    row = Row("fetch 1 MB chunks, sendfile", ours.rate, "MB/s", ratio_at_least(0.9), bare.rate, "loopback", note)
    yield row
    yield _against_c(Row(row.name, ours.rate, "MB/s"), [ours, *theirs], "", peers)


def _ask_tiny(plan: Plan, peer: Peer) -> Trial:
    frame = frames.tiny_frame()
    return measure(peer, lambda: load.spread(peer.port, frame, plan.seconds, CONNECTIONS, in_flight=1))


def _produce_to_new_topic(plan: Plan, broker: BrokerProcess, batch_bytes: int) -> Trial:
    with topics.topic(broker.port, TOPIC):
        return _produce(plan, broker, batch_bytes)


def _produce(plan: Plan, peer: Peer, batch_bytes: int) -> Trial:
    """MB/s of batches, every one of which was appended."""
    one = frames.produce_frame(TOPIC, batch_bytes, SystemClock().now_ms())
    count = plan.bytes // batch_bytes
    sent = 0

    def run() -> load.Load:
        nonlocal sent
        done = load.pipelined(peer.port, one.frame, count, IN_FLIGHT, plan.seconds)
        sent = done.requests
        return done

    trial = measure(peer, run, batch_bytes / _MB)
    check_produced(peer.port, one.frame, records_before=(1 + sent) * one.records)
    return trial


def _store(peer: Peer) -> None:
    """Fills the log with what `_fetch` reads."""
    one = frames.produce_frame(TOPIC, FETCHED_BATCH_BYTES, SystemClock().now_ms())
    load.pipelined(peer.port, one.frame, STORED_BYTES // FETCHED_BATCH_BYTES, IN_FLIGHT, seconds=60)


def _fetch(plan: Plan, peer: Peer) -> Trial:
    batch = frames.exact_batch(FETCHED_BATCH_BYTES, SystemClock().now_ms())
    chunk_records = CHUNK_BYTES // FETCHED_BATCH_BYTES * batch.records
    offsets = range(0, STORED_BYTES // CHUNK_BYTES * chunk_records, chunk_records)
    requests = frames.fetch_frames(TOPIC, offsets, CHUNK_BYTES)
    check_fetched(peer.port, requests[-1], CHUNK_BYTES)
    count = plan.bytes // CHUNK_BYTES
    return measure(
        peer, lambda: load.download(peer.port, requests, count, FETCHES_IN_FLIGHT, plan.seconds), CHUNK_BYTES / _MB
    )


def _fetch_stored(plan: Plan, peer: Peer) -> Trial:
    _store(peer)
    return _fetch(plan, peer)


def _loopback(plan: Plan, file: Path) -> Trial:
    return Trial(loopback.megabytes_per_second(file, plan.bytes, plan.seconds))


def _file(path: Path) -> Path:
    file = path / "file"
    file.write_bytes(bytes(STORED_BYTES))
    return file


def _cpu_text(figures: list[Trial], per: float, unit: str) -> str:
    ours, *theirs = (f"{figure.cpu_s * per:.2g}" for figure in figures)
    return f"broker CPU {ours} {unit}" + (f", C {theirs[0]}" if theirs else "")


def _against_c(row: Row, figures: list[Trial], note: str, peers: CPeers) -> Row:
    remarks = "; ".join(part for part in (note, peers.missing) if part)
    return row.against("C", figures[1].rate if len(figures) > 1 else None, remarks)
