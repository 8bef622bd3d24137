"""Pipelines written in YAML: SQL over topics.

    sources:
      orders: {topic: orders, value: {format: json, schema: {id: long, amount: double}}}
    views:
      large: SELECT * FROM orders WHERE amount > 100
    sinks:
      large-orders: {from: large, topic: large-orders, key: id}

Keys are the keywords of `read` and `write`, so that there is one reference for both forms.
"""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipelines.definition.errors import PipelineError, nearest
from tidelog.pipelines.definition.pipeline import assemble
from tidelog.pipelines.definition.settings import Settings
from tidelog.pipelines.definition.sinks import Sink, write
from tidelog.pipelines.definition.sources import Source, as_watermark, read
from tidelog.pipelines.definition.sql import inputs_of
from tidelog.pipelines.definition.views import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tidelog.pipelines.definition.pipeline import Pipeline

_SECTIONS: Final = ("sources", "views", "sinks")
_READS: Final[dict[str, Callable[..., Source]]] = {
    "topic": read.topic,
    "pattern": read.topic,
    "table": read.table,
    "files": read.files,
    "jdbc": read.jdbc,
    "rate": read.rate,
}
_WRITES: Final[dict[str, Callable[..., Sink]]] = {
    "topic": write.topic,
    "table": write.table,
    "files": write.files,
    "parquet": write.parquet,
    "jdbc": write.jdbc,
    "console": write.console,
}
_FIRST: Final = {"pattern": "pattern"}


def from_yaml(text: str, file: Path) -> Pipeline:
    try:
        import yaml  # noqa: PLC0415 - the extra that has it also has Spark
    except ImportError:
        raise PipelineError("pipelines in YAML need PyYAML: pip install 'tidelog[spark]'") from None
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise PipelineError(f"{where}this is not YAML: {getattr(error, 'problem', None) or error}") from None
    return from_document(document, file)


def from_document(document: Any, file: Path) -> Pipeline:
    if not isinstance(document, dict):
        raise PipelineError(f"a pipeline has {', '.join(_SECTIONS)}: see docs/pipelines.md")
    known = {*_SECTIONS, *(each.name for each in fields(Settings))}
    for key in document:
        if key not in known:
            raise PipelineError(f"there is no setting {key!r}: {nearest(str(key), known)}")
    sources = {name: _source(name, given) for name, given in _section(document, "sources")}
    views: dict[str, Any] = dict(_section(document, "views"))
    sinks = dict(_section(document, "sinks"))
    for both in sorted(views.keys() & sources.keys()):
        raise PipelineError(f"{both} is both a source and a view: give one another name")
    for both in sorted(views.keys() & sinks.keys()):
        raise PipelineError(f"{both} is both a view and a sink: give one another name")
    named = [*sources, *views]
    built = {name: _view(name, given, [each for each in named if each != name]) for name, given in views.items()}
    for name, given in sinks.items():
        _add_sink(name, given, built, named)
    try:
        settings = Settings(**{key: value for key, value in document.items() if key not in _SECTIONS})
    except (TypeError, AttributeError) as error:
        raise PipelineError(f"the pipeline's settings: {error}") from None
    return assemble(file, settings, sources, built)


def _section(document: Mapping[str, Any], section: str) -> list[tuple[str, Any]]:
    given = document.get(section) or {}
    if not isinstance(given, dict):
        raise PipelineError(f"{section} is a mapping of names, not a {type(given).__name__}")
    return [(str(name), each) for name, each in given.items()]


def _source(name: str, given: Any) -> Source:
    if not name.isidentifier():
        raise PipelineError(f"source {name!r}: SQL needs names of letters, digits and underscores")
    source = _built(f"source {name}", given, _READS)
    assert isinstance(source, Source)
    return source


def _view(name: str, given: Any, known: list[str]) -> View:
    if not name.isidentifier():
        raise PipelineError(f"view {name!r}: SQL needs names of letters, digits and underscores")
    given = {"sql": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or not isinstance(given.get("sql"), str):
        raise PipelineError(f"view {name}: it is SQL, or has `sql` and perhaps `watermark`")
    _refuse_unknown(f"view {name}", given, {"sql", "watermark"})
    return View(
        inputs_of(given["sql"], known, f"view {name}"), sql=given["sql"], watermark=as_watermark(given.get("watermark"))
    )


def _add_sink(name: str, given: Any, views: dict[str, View], known: list[str]) -> None:
    """Puts the sink where its rows come from, or makes a view of its own SQL."""
    if not isinstance(given, dict):
        raise PipelineError(f"sink {name}: it is a mapping, with `sql` or `from`, and where to write to")
    sql, taken = given.get("sql"), given.get("from")
    if (sql is None) == (taken is None):
        raise PipelineError(f"sink {name}: its rows come from `sql`, or are those of the view or source in `from`")
    rest = {key: value for key, value in given.items() if key not in {"sql", "from"}}
    sink = _built(f"sink {name}", rest, _WRITES)
    assert isinstance(sink, Sink)
    sink = replace(sink, name=name)
    if sql is not None:
        views[f"sink {name}"] = View(inputs_of(str(sql), known, f"sink {name}"), sql=str(sql), sinks=(sink,))
    elif taken in views:
        views[taken] = replace(views[taken], sinks=(*views[taken].sinks, sink))
    elif taken in known:
        views[f"sink {name}"] = View((str(taken),), sql=f"SELECT * FROM {taken}", sinks=(sink,))  # noqa: S608 - a known name
    else:
        raise PipelineError(f"sink {name}: there is no source or view {taken!r}: {nearest(str(taken), known)}")


def _built(what: str, given: Any, kinds: Mapping[str, Callable[..., Any]]) -> Any:
    if not isinstance(given, dict):
        raise PipelineError(f"{what}: it is a mapping with one of {', '.join(kinds)}")
    chosen = [kind for kind in kinds if kind in given and not (kind == "table" and "jdbc" in given)]
    if len(chosen) != 1:
        raise PipelineError(f"{what}: it needs exactly one of {', '.join(kinds)}")
    kind = chosen[0]
    build = kinds[kind]
    if kind == "console" and isinstance(given[kind], dict):  # it has no place to name, and what it has may stand there
        given = {**given, **given[kind]}
    parameters = inspect.signature(build).parameters
    positional = [each for each in parameters.values() if each.kind is not each.KEYWORD_ONLY]
    keywords = {key: value for key, value in given.items() if key != kind or kind in _FIRST}
    _refuse_unknown(what, keywords, set(parameters) - {each.name for each in positional} | ({kind} & set(_FIRST)))
    arguments = [given[kind]] if kind not in _FIRST and positional and given[kind] is not None else []
    try:
        return build(*arguments, **keywords)
    except PipelineError as error:
        raise PipelineError(f"{what}: {error}") from None
    except TypeError as error:
        raise PipelineError(f"{what}: {str(error).replace(f'{build.__qualname__}() ', '')}") from None


def _refuse_unknown(what: str, given: Mapping[str, Any], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise PipelineError(f"{what}: there is no {key!r}: {nearest(str(key), known)}")
