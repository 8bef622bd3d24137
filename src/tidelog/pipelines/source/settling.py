"""Where several streams begin together, though they start one after the other."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipelines.source.connections import OpenCluster, run
from tidelog.pipelines.source.log_view import LogView
from tidelog.pipelines.source.marks import TOPIC_IDS, Mark
from tidelog.pipelines.source.options import Place
from tidelog.pipelines.source.planning import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipelines.source.options import SourceOptions

_STARTING: Final = "starting"
"""What the names of all options begin with that say where to begin."""


class Beginning(NamedTuple):
    subscription: str
    """What is read. The offsets mean nothing to streams that read something else."""
    offsets: str
    """As option startingOffsets takes them."""

    def within(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options of a stream that begins here, whatever they said of that."""
        others = {name: value for name, value in options.items() if not name.lower().startswith(_STARTING)}
        return {**others, "startingOffsets": self.offsets}


def settle(options: SourceOptions) -> Beginning:
    """Where a stream with these options would begin now. Topics that do not exist yet begin with their first record."""
    with closing(OpenCluster(options.consumer)) as connections:
        mark = run(_mark(options, LogView(connections.cluster, options.consumer, options.subscription)))
    return Beginning(str(options.subscription), json.dumps({TOPIC_IDS: {}, **mark.to_document()}))


async def _mark(options: SourceOptions, view: LogView) -> Mark:
    partitions = await view.partitions()
    bound = options.starting or Place.LATEST
    return Mark.of(await resolve(bound, "startingOffsets", view, options, partitions), partitions)
