"""Where several streams begin together, though they start one after the other."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipelines.options import OptionError
from tidelog.pipelines.source.connections import OpenCluster, run
from tidelog.pipelines.source.errors import SourceError
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
    asked: str
    """What is read, and from where. The offsets mean nothing to streams that were told otherwise."""
    offsets: str
    """As option startingOffsets takes them."""

    def within(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options of a stream that begins here, whatever they said of that."""
        others = {name: value for name, value in options.items() if not name.lower().startswith(_STARTING)}
        return {**others, "startingOffsets": self.offsets}


def asked(options: SourceOptions) -> str:
    return f"{options.subscription} from {options.starting or Place.LATEST}"


def settle(options: SourceOptions) -> Beginning | None:
    """Where a stream with these options would begin now. Topics that do not exist yet begin with their first record.

    None: it could not begin now. It will say so itself, if it has to ask at all.
    """
    with closing(OpenCluster(options.consumer)) as connections:
        view = LogView(connections.cluster, options.consumer, options.subscription)
        try:
            mark = run(_mark(options, view))
        except (OptionError, SourceError):
            return None
    return Beginning(asked(options), json.dumps({TOPIC_IDS: {}, **mark.to_document()}))


async def _mark(options: SourceOptions, view: LogView) -> Mark:
    bound = options.starting or Place.LATEST
    # Offsets and times are said of partitions that are there, whereas all that comes later is behind the end.
    partitions = await (view.partitions() if isinstance(bound, Place) else view.existing_partitions())
    return Mark.of(await resolve(bound, "startingOffsets", view, options, partitions), partitions)
