"""Which partitions there are and where they end, as brokers last said.

Spark asks every few milliseconds while nothing comes. Brokers are asked less often the longer that lasts, up to a
fraction of what a batch takes anyway; for new topics and partitions, about once a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.pipelines.source.log_view import LogView, Partitions
    from tidelog.pipelines.source.positions import Positions

_REST_FIRST_S: Final = 0.001
_REST_MAX_S: Final = 0.025
_DOUBLINGS_MAX: Final = 5
_LOOK_FOR_PARTITIONS_S: Final = 1.0


class Outlook:
    def __init__(self, view: LogView, clock: Clock) -> None:
        self.partitions: Partitions = {}
        self.ends: Positions = {}
        """Of all of them."""
        self._view = view
        self._clock = clock
        self._partitions_s = self._ends_s = float("-inf")

    def is_fresh(self, idle: int) -> bool:
        """Whether it is too early to ask again, after so many times at which nothing was new."""
        rest_s = min(_REST_MAX_S, _REST_FIRST_S * (1 << min(idle, _DOUBLINGS_MAX)))
        return self._clock.monotonic() - self._ends_s < rest_s

    async def look(self, *, thoroughly: bool = False) -> None:
        """Asks where partitions end, and (`thoroughly`, or when it is time) which there are."""
        now_s = self._clock.monotonic()
        partitions = self.partitions
        if thoroughly or now_s - self._partitions_s >= _LOOK_FOR_PARTITIONS_S:
            partitions, ends = await asyncio.gather(self._view.partitions(), self._view.latest(partitions))
            self._partitions_s = now_s
        else:
            ends = await self._view.latest(partitions)
        missing = partitions.keys() - ends.keys()
        if missing:
            # Either they are new, and have not been asked for yet, or they have just vanished.
            if missing & self.ends.keys():
                partitions = await self._view.partitions()
            ends |= await self._view.latest(missing & partitions.keys())
        self.partitions = {at: topic_id for at, topic_id in partitions.items() if at in ends}
        self.ends = {at: ends[at] for at in self.partitions}
        self._ends_s = now_s
