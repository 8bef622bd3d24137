"""Bulk work, as the controller does it: ten thousand nodes through multis. The speed is reported, never judged."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tidelog.clock import SystemClock
from tidelog.znodes.embedded import open_embedded
from tidelog.znodes.store import Create

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = 10_000
PER_MULTI = 100


def test_ten_thousand_nodes_through_multis(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    async def write_and_read() -> float:
        store = await open_embedded(tmp_path / "znodes", SystemClock())
        await store.create("/t")
        started = time.perf_counter()
        await asyncio.gather(
            *(
                store.multi([Create(f"/t/{number}", b"{}" * 40) for number in range(start, start + PER_MULTI)])
                for start in range(0, NODES, PER_MULTI)
            )
        )
        seconds = time.perf_counter() - started
        assert len(await store.children("/t")) == NODES
        assert (await store.get("/t"))[1].cversion == NODES
        await store.close()
        reopened = await open_embedded(tmp_path / "znodes", SystemClock())
        found = await reopened.get_many([f"/t/{number}" for number in range(NODES)])
        assert all(entry is not None and entry[0] == b"{}" * 40 for entry in found)
        assert await reopened.delete_recursively("/t")
        await reopened.close()
        return seconds

    seconds = asyncio.run(write_and_read())
    record_property("creates_per_second", round(NODES / seconds))
    print(f"{NODES} nodes in multis of {PER_MULTI}: {NODES / seconds:,.0f} creates/s")  # noqa: T201 - the report
