"""Where the queries of a pipeline begin in topics, if that depends on when they ask.

Queries start one after the other, and the end of a topic moves meanwhile, as does the position of a group that they
share: a malformed record that came after a sink had begun and before its dead letters had would be in neither. So this
is settled before the first of them starts. It is kept until a query has done its first batch, with which its own
checkpoint takes over: a run may end before the last of them has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.pipelines.source.options import Place, SourceOptions
from tidelog.pipelines.source.settling import Beginning, asked, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipelines.runner.directory import PipelineDirectory


class Beginnings:
    """All by source, and by the group that stands for a query."""

    def __init__(self, directory: PipelineDirectory) -> None:
        self._directory = directory
        self._kept: dict[str, dict[str, Any]] = directory.beginnings()
        """None: the query has begun."""

    def settle(self, source: str, options: Mapping[str, Mapping[str, str]]) -> None:
        """For the queries that read a source, each with its options. Those that are new begin together, now."""
        kept = self._kept.get(source, {})
        found: dict[str | None, Beginning | None] = {}
        """By the group that was asked for its position, if that is where to begin."""
        new: dict[str, Beginning] = {}
        for group, given in options.items():
            parsed = SourceOptions.parse(given)
            if not parsed.begins_when_asked or not _is_new(kept, group, asked(parsed)):
                continue
            whose = parsed.group_id if parsed.starting is Place.GROUP else None
            if whose not in found:
                found[whose] = settle(parsed)
            beginning = found[whose]
            if beginning is not None:
                new[group] = beginning
        if new:
            self._keep(source, {**kept, **new})

    def within(self, options: Mapping[str, str], source: str, group: str) -> Mapping[str, str]:
        """The options of a query, with its beginning if that was settled."""
        kept = self._kept.get(source, {}).get(group)
        if kept is None or asked(SourceOptions.parse(options)) != Beginning(*kept).asked:
            return options
        return Beginning(*kept).within(options)

    def begun(self, group: str) -> None:
        """The query has a checkpoint now."""
        for source, kept in list(self._kept.items()):
            if kept.get(group) is not None:
                self._keep(source, {**kept, group: None})

    def _keep(self, source: str, kept: dict[str, Any]) -> None:
        self._kept = {**self._kept, source: kept}
        self._directory.save_beginnings(self._kept)


def _is_new(kept: Mapping[str, Any], group: str, asked_now: str) -> bool:
    if group not in kept:
        return True
    return kept[group] is not None and Beginning(*kept[group]).asked != asked_now
