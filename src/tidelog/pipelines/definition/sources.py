"""Where the rows of a pipeline come from.

orders = read.topic("orders", value=json("id long, at timestamp"), watermark=("at", "10 minutes"))

@read.topic("clicks", value=json("user string, at timestamp"))
def clicks(rows):                       # what is done to the rows before anybody sees them
    return rows.where("user is not null")
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tidelog.pipelines.definition.durations import seconds
from tidelog.pipelines.definition.errors import PipelineError, nearest
from tidelog.pipelines.definition.formats import Format, as_format, binary, schema_text, text
from tidelog.pipelines.definition.topic_options import as_starting, check_stream, check_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

OnError = Literal["dead-letter", "drop", "fail"]
Tombstones = Literal["drop", "keep"]
METADATA = ("key", "topic", "partition", "offset", "timestamp", "headers")


class Watermark(NamedTuple):
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TopicRead:
    topics: tuple[str, ...]
    pattern: str | None
    value: Format
    key: Format | None
    starting: str
    max_per_trigger: int | None
    metadata: tuple[str, ...]
    tombstones: Tombstones
    on_error: OnError
    options: dict[str, str]

    @property
    def subscription(self) -> dict[str, str]:
        """As options of the source."""
        return {"subscribe": ",".join(self.topics)} if self.pattern is None else {"subscribePattern": self.pattern}

    @property
    def stream_options(self) -> dict[str, str]:
        """All that is known of them without knowing who reads."""
        limit = {} if self.max_per_trigger is None else {"maxOffsetsPerTrigger": str(self.max_per_trigger)}
        return {"startingOffsets": self.starting, **self.subscription, **self.options, **limit}


@dataclass(frozen=True, slots=True)
class TableRead:
    """The latest value of each key."""

    topic: str
    value: Format
    key: Format
    on_error: OnError
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class FilesRead:
    path: str
    format: str
    schema: str | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class JdbcRead:
    url: str
    table: str | None
    query: str | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class RateRead:
    rows_per_second: int
    options: dict[str, str]


Reading = TopicRead | TableRead | FilesRead | JdbcRead | RateRead


@dataclass(frozen=True)
class Source:
    reads: Reading
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    function: Callable[[DataFrame], DataFrame] | None = field(default=None, compare=False)

    def __call__(self, given: Any) -> Any:
        """Decorates the function that prepares the rows; afterwards it can be called as the function it was."""
        if self.function is not None:
            return self.function(given)
        if not callable(given):
            raise PipelineError("a source decorates a function from DataFrame to DataFrame")
        return replace(self, function=given)

    @property
    def streams(self) -> bool:
        return isinstance(self.reads, TopicRead | FilesRead | RateRead)


class read:  # noqa: N801 - reads as a verb: read.topic(...)
    """Each of these makes a source."""

    @staticmethod
    def topic(
        *topic: str | Sequence[str],
        pattern: str | None = None,
        value: Any = None,
        key: Any = None,
        starting: str | Mapping[str, Mapping[Any, int]] = "earliest",
        max_per_trigger: int | None = None,
        metadata: Sequence[str] = (),
        tombstones: Tombstones = "drop",
        on_error: OnError = "dead-letter",
        watermark: Any = None,
        deduplicate: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        topics = tuple(name for each in topic for name in _names(each))
        if bool(topics) == (pattern is not None):
            raise PipelineError("a source of topics names them, or gives a pattern")
        for name in _names(metadata):
            if name not in METADATA:
                raise PipelineError(f"there is no metadata {name!r}: {nearest(name, METADATA)}")
        reading = TopicRead(
            topics,
            None if pattern is None else _text(pattern, "the pattern"),
            binary() if value is None else as_format(value, "value"),
            None if key is None else _key_format(key),
            as_starting(starting),
            _count(max_per_trigger, "max_per_trigger"),
            _names(metadata),
            _one_of(tombstones, Tombstones, "tombstones"),
            _one_of(on_error, OnError, "on_error"),
            _texts(options),
        )
        check_stream(reading.stream_options)
        return _source(reading, watermark, deduplicate)

    @staticmethod
    def table(
        topic: str,
        *,
        key: Any,
        value: Any,
        on_error: OnError = "dead-letter",
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        """The latest value of each key of a compacted topic, read anew for every batch."""
        check_table({"subscribe": _text(topic, "the topic"), **_texts(options)}, letters=on_error == "dead-letter")
        return Source(
            TableRead(
                topic,
                as_format(value, "value"),
                _key_format(key),
                _one_of(on_error, OnError, "on_error"),
                _texts(options),
            )
        )

    @staticmethod
    def files(
        path: str,
        *,
        format: str = "json",  # noqa: A002 - Spark's name for it
        schema: Any = None,
        watermark: Any = None,
        deduplicate: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        """Files of a directory, also those that come later."""
        return _source(
            FilesRead(_text(path, "the path"), format, schema_text(schema), _texts(options)), watermark, deduplicate
        )

    @staticmethod
    def jdbc(
        url: str,
        *,
        table: str | None = None,
        query: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        """A table of a database, or what a query gives, read anew for every batch."""
        if (table is None) == (query is None):
            raise PipelineError("a jdbc source names a table, or gives a query")
        return Source(JdbcRead(_text(url, "the url"), table, query, _texts(options)))

    @staticmethod
    def rate(
        rows_per_second: int = 1,
        *,
        watermark: Any = None,
        deduplicate: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        """Made-up rows, `timestamp` and `value`, to try things out."""
        rate = RateRead(_count(rows_per_second, "rows_per_second"), _texts(options))
        return _source(rate, watermark, deduplicate)


def _source(reading: Reading, watermark: Any, deduplicate: str | Sequence[str]) -> Source:
    late = as_watermark(watermark)
    if deduplicate and late is None:
        raise PipelineError("deduplicate needs a watermark: without one, what was seen has to be remembered forever")
    return Source(reading, late, _names(deduplicate))


def as_watermark(given: Any) -> Watermark | None:
    """From ('at', '10 minutes') or {'at': '10 minutes'}."""
    if given is None:
        return None
    pair = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else given
    if (
        isinstance(pair, str | dict)
        or not hasattr(pair, "__len__")
        or len(pair) != 2
        or not all(isinstance(each, str) for each in pair)
    ):
        raise PipelineError(f"a watermark names a column and how late its rows may be, not {given!r}")
    column, delay = pair
    seconds(delay, f"the watermark of {column}")
    return Watermark(column, delay)


def _key_format(given: Any) -> Format:
    """A plain name is that of the column the key's text is put into."""
    if isinstance(given, str):
        return text(given)
    return as_format(given, "key")


def _names(given: Any) -> tuple[str, ...]:
    """From one or several."""
    names = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    return tuple(_text(name, "a name") for name in names)


def _one_of(given: Any, choices: Any, what: str) -> Any:
    if given not in get_args(choices):
        raise PipelineError(f"{what} is one of {', '.join(get_args(choices))}, not {given!r}")
    return given


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise PipelineError(f"{what} is text, not {given!r}")
    return given


def _count(given: Any, what: str) -> Any:
    if given is not None and (type(given) is not int or given < 1):
        raise PipelineError(f"{what} is a whole number of at least 1, not {given!r}")
    return given


def _texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        str(key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (options or {}).items()
    }
