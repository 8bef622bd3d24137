"""A whole pipeline: sources, views and sinks, checked to fit each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipelines.definition.errors import PipelineError, nearest
from tidelog.pipelines.definition.settings import Settings, check_name
from tidelog.pipelines.definition.sources import Source, TableRead, TopicRead
from tidelog.pipelines.definition.views import SESSION, View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tidelog.pipelines.definition.sinks import Sink

DEAD_LETTERS = "dead-letters"
"""What the names of queries that write them begin with; no sink's does."""


class Query(NamedTuple):
    """What one sink runs."""

    name: str
    view: str
    sink: Sink


@dataclass(frozen=True)
class Pipeline:
    name: str
    file: Path
    settings: Settings
    sources: Mapping[str, Source]
    views: Mapping[str, View]
    queries: tuple[Query, ...]

    @property
    def dead_letter_topic(self) -> str:
        return self.settings.dead_letters or f"{self.name}.dead-letters"

    def decoded(self) -> Iterator[tuple[str, Source]]:
        """Sources whose malformed records go to the dead letters."""
        for name, source in self.sources.items():
            reads = source.reads
            if isinstance(reads, TopicRead | TableRead) and reads.on_error == "dead-letter":
                kinds = {reads.value.kind} | ({reads.key.kind} if reads.key is not None else set())
                if kinds != {"binary"}:
                    yield name, source

    @staticmethod
    def dead_letter_query(source: str) -> str:
        """The query that writes those of a source. Each has its own: Spark goes on from a checkpoint only with as many
        sources as it was left with, so that one for all would be lost with every source that comes or goes."""
        return f"{DEAD_LETTERS}.{source}"

    def group(self, query: str) -> str:
        """The consumer group that a query commits its positions to."""
        return f"{self.name}.{query}"

    def readers(self, source: str) -> list[str]:
        """The queries that read a source, by name."""
        sinks = [query.name for query in self.queries if source in self.needs(query.view)]
        return [*sinks, *(self.dead_letter_query(name) for name, _ in self.decoded() if name == source)]

    def unused(self) -> list[str]:
        """Sources and views that no sink needs."""
        used = {need for query in self.queries for need in self.needs(query.view)}
        return sorted({*self.sources, *self.views} - used)

    def needs(self, name: str) -> list[str]:
        """A view or source and all it is made of, sources first."""
        ordered: dict[str, None] = {}

        def visit(each: str) -> None:
            if each in ordered:
                return
            for needed in self.views[each].inputs if each in self.views else ():
                if needed != SESSION:
                    visit(needed)
            ordered[each] = None

        visit(name)
        return list(ordered)

    def streams(self, query: Query) -> bool:
        """Whether it goes on when all that there is has been read."""
        return any(name in self.sources and self.sources[name].streams for name in self.needs(query.view))


def assemble(file: Path, settings: Settings, sources: Mapping[str, Source], views: Mapping[str, View]) -> Pipeline:
    """PipelineError says what does not fit."""
    name = settings.name or file.stem.replace(" ", "-")
    check_name(name)
    for both in sorted({*sources} & {*views}):
        raise PipelineError(f"{both} is both a source and a view")
    if SESSION in {*sources, *views}:
        raise PipelineError(f"{SESSION!r} is the session's name: give the source or view another")
    for at, view in views.items():
        for needed in view.inputs:
            if needed != SESSION and needed not in sources and needed not in views:
                known = [each for each in (*sources, *views) if each != at]
                raise PipelineError(
                    f"{at} takes {needed!r}, and there is no such source or view: {nearest(needed, known)}"
                )
    _refuse_cycles(views)
    queries = tuple(_queries(views))
    if not queries:
        raise PipelineError("nothing is written anywhere: give the pipeline a sink, such as write.console()")
    found = Pipeline(name, file, settings, dict(sources), dict(views), queries)
    for source, _ in found.decoded():
        check_name(found.dead_letter_query(source))
    return found


def _queries(views: Mapping[str, View]) -> Iterator[Query]:
    seen: set[str] = set()
    for at, view in views.items():
        for place, sink in enumerate(view.sinks):
            name = sink.name or (at if place == 0 else f"{at}-{sink.kind}")
            check_name(name)
            if name == DEAD_LETTERS or name.startswith(f"{DEAD_LETTERS}."):
                raise PipelineError(f"sink {name!r} is named as dead letters are: give it another name, with name=...")
            if name in seen:
                raise PipelineError(f"two sinks are named {name!r}: give one another, with name=...")
            seen.add(name)
            yield Query(name, at, sink)


def _refuse_cycles(views: Mapping[str, View]) -> None:
    done: set[str] = set()

    def visit(at: str, way: tuple[str, ...]) -> None:
        if at in way:
            raise PipelineError(f"these take each other: {' <- '.join((*way[way.index(at) :], at))}")
        if at in done or at not in views:
            return
        for needed in views[at].inputs:
            visit(needed, (*way, at))
        done.add(at)

    for at in views:
        visit(at, ())
