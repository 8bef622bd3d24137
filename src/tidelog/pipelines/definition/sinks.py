"""Where the rows of a pipeline go to.

    @write.topic("sales", key="product", mode="update")
    @write.parquet("/data/sales")
    def sales(orders): ...

One function may have several sinks; each is a query of its own, with its own checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.definition.formats import Format, as_format, json
from tidelog.pipelines.definition.sources import _count, _names, _one_of, _text, _texts
from tidelog.pipelines.definition.topic_options import check_sink
from tidelog.pipelines.definition.views import View, as_view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Mode = Literal["append", "update", "complete"]
Delivery = Literal["exactly-once", "at-least-once"]


@dataclass(frozen=True, slots=True)
class TopicWrite:
    topic: str | None
    key: tuple[str, ...]
    value: Format | None
    """None: the rows have the columns key, value, headers, topic, partition themselves."""
    headers: tuple[str, ...]
    partitions: int | None
    compacted: bool
    delivery: Delivery
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class FilesWrite:
    path: str
    format: str
    partition_by: tuple[str, ...]
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class JdbcWrite:
    url: str
    table: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class ConsoleWrite:
    rows: int


Writing = TopicWrite | FilesWrite | JdbcWrite | ConsoleWrite


@dataclass(frozen=True, slots=True)
class Sink:
    kind: str
    writes: Writing
    mode: Mode
    name: str | None = None
    trigger: str | None = None

    def __call__(self, given: Callable[..., Any] | View) -> View:
        """Decorates the function whose rows it takes."""
        view = as_view(given)
        return replace(view, sinks=(*view.sinks, self))


def _topic_write(
    topic: str | None,
    key: str | Sequence[str],
    value: Format | None,
    partitions: int | None,
    delivery: Delivery,
    options: Mapping[str, Any] | None,
) -> TopicWrite:
    check_sink(_texts(options))
    return TopicWrite(
        None if topic is None else _text(topic, "the topic"),
        _names(key),
        value,
        headers=(),
        partitions=_count(partitions, "partitions"),
        compacted=False,
        delivery=_one_of(delivery, Delivery, "delivery"),
        options=_texts(options),
    )


class write:  # noqa: N801 - reads as a verb: write.topic(...)
    """Each of these makes a sink."""

    @staticmethod
    def topic(
        topic: str | None = None,
        *,
        key: str | Sequence[str] = (),
        value: Any = "json",
        headers: str | Sequence[str] = (),
        mode: Mode = "append",
        partitions: int | None = None,
        delivery: Delivery = "exactly-once",
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Sink:
        """`key` names the column, or columns, that the key is made of. With `value='columns'` the rows already have the
        columns value and, if wanted, key, headers, topic and partition. `partitions`: the topic is made if need be."""
        encoded = None if value == "columns" else as_format(value, "value")
        if topic is None and encoded is not None:
            raise PipelineError("a sink to topics names one, or takes it from the column topic with value='columns'")
        writes = _topic_write(topic, key, encoded, partitions, delivery, options)
        return Sink("topic", replace(writes, headers=_names(headers)), _one_of(mode, Mode, "mode"), name)

    @staticmethod
    def table(
        topic: str,
        *,
        key: str | Sequence[str],
        value: Any = None,
        mode: Mode = "update",
        partitions: int | None = None,
        delivery: Delivery = "exactly-once",
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Sink:
        """Upserts into a compacted topic, which is made if need be. A row whose column `_deleted` is true deletes."""
        if not _names(key):
            raise PipelineError("a table needs a key: the column, or columns, that say which row is replaced")
        encoded = json() if value is None else as_format(value, "value")
        writes = _topic_write(topic, key, encoded, partitions, delivery, options)
        return Sink("table", replace(writes, compacted=True), _one_of(mode, Mode, "mode"), name)

    @staticmethod
    def files(
        path: str,
        *,
        format: str = "parquet",  # noqa: A002 - Spark's name for it
        partition_by: str | Sequence[str] = (),
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Sink:
        return Sink(
            "files", FilesWrite(_text(path, "the path"), format, _names(partition_by), _texts(options)), "append", name
        )

    @staticmethod
    def parquet(
        path: str,
        *,
        partition_by: str | Sequence[str] = (),
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Sink:
        writes = FilesWrite(_text(path, "the path"), "parquet", _names(partition_by), _texts(options))
        return Sink("parquet", writes, "append", name)

    @staticmethod
    def jdbc(
        url: str,
        *,
        table: str,
        mode: Mode = "append",
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Sink:
        """A table of a database, at least once. With mode `complete` it is emptied before each batch."""
        return Sink(
            "jdbc",
            JdbcWrite(_text(url, "the url"), _text(table, "the table"), _texts(options)),
            _one_of(mode, Mode, "mode"),
            name,
        )

    @staticmethod
    def console(*, rows: int = 20, mode: Mode = "update", name: str | None = None) -> Sink:
        return Sink("console", ConsoleWrite(_count(rows, "rows")), _one_of(mode, Mode, "mode"), name)


MODES = get_args(Mode)
