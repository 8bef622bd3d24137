"""Where the queries of a pipeline begin in topics that are read from their end.

Queries start one after the other, and the end of a topic moves meanwhile: a malformed record that came after a sink had
begun and before its dead letters had would be in neither. So the end is settled before the first of them starts. It is
kept, as a run may end before the last of them has started. Only queries without a checkpoint look at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.source.options import SourceOptions
from tidelog.pipelines.source.settling import Beginning, settle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipelines.runner.directory import PipelineDirectory


class Beginnings:
    def __init__(self, directory: PipelineDirectory) -> None:
        self._directory = directory
        self._settled: dict[str, dict[str, Beginning]] = {}
        """By source and group: those of this run."""

    def settle(self, source: str, groups: Sequence[str], options: Mapping[str, str]) -> None:
        """For the queries that read a source, each with its group. Those that are new begin together, now."""
        parsed = SourceOptions.parse(options)
        if not parsed.begins_when_asked:
            return
        kept = self._directory.beginnings()
        known = {group: Beginning(*each) for group, each in kept.get(source, {}).items()}
        known = {group: each for group, each in known.items() if each.subscription == str(parsed.subscription)}
        new = [group for group in groups if group not in known]
        if new:
            known |= dict.fromkeys(new, settle(parsed))
            self._directory.save_beginnings({**kept, source: known})
        self._settled[source] = known

    def within(self, options: Mapping[str, str], source: str, group: str) -> Mapping[str, str]:
        """The options of a query, with its beginning if that was settled."""
        found = self._settled.get(source, {}).get(group)
        return options if found is None else found.within(options)
