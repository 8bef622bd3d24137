"""The options of the source, read once: those of Spark's Kafka source by the same names, and a few of our own. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from tidelog.client.config import ConsumerConfig
from tidelog.pipelines.options import OptionError, Options
from tidelog.pipelines.own_topics import OWN_TOPICS
from tidelog.pipelines.source.errors import ForeignCheckpoint
from tidelog.pipelines.source.marks import TOPIC_IDS, Mark
from tidelog.pipelines.source.positions import EARLIEST, LATEST, Positions, parse_partitions, parse_positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.types import TopicPartition

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_KNOWN: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "excludeTopics",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "columns",
    "pushFilters",
    "kafkaConsumer.pollTimeoutMs",
)
_OF_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters")
_STREAMING: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
_TRIES_AGAIN: Final = "the client tries again by itself for as long as kafka.default.api.timeout.ms says: set that"
_SENSELESS: Final = {
    "fetchOffset.numRetries": _TRIES_AGAIN,
    "fetchOffset.retryIntervalMs": _TRIES_AGAIN,
    "topic": "it is the sink's; the source takes subscribe",
    "path": "topics have no path: load() takes none, option subscribe names topics",
}
_POSITIONS_ARE_SPARKS: Final = (
    "Spark keeps the positions in its checkpoint, and the source commits them with each batch"
)
_NO_INTERCEPTORS: Final = "records go to Spark as they are, without passing through classes of Java"
_COLUMNS_ARE_BYTES: Final = (
    "key and value are always bytes: decode the columns, for example with from_json or from_avro"
)
_REFUSED: Final = {
    "enable.auto.commit": _POSITIONS_ARE_SPARKS,
    "interceptor.classes": _NO_INTERCEPTORS,
    "key.deserializer": _COLUMNS_ARE_BYTES,
    "value.deserializer": _COLUMNS_ARE_BYTES,
    "key.serializer": _COLUMNS_ARE_BYTES,
    "value.serializer": _COLUMNS_ARE_BYTES,
    "group.protocol": "the source reads what Spark assigns to it, and is no member of its group",
    "group.instance.id": "the source reads what Spark assigns to it, and is no member of its group",
    "allow.auto.create.topics": "the source creates no topics",
}
_DEFAULTS: Final = {
    "isolation.level": "read_committed",
    "max.partition.fetch.bytes": str(8 << 20),
    "client.id": "tidelog-spark-source",
}
_GROUP_ID_PREFIX: Final = "tidelog-spark-source"
_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_STALLED_MS: Final = 120_000


class Place(Enum):
    """Where to begin or end, in every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    """Where the group has come to."""


@dataclass(frozen=True, slots=True)
class Instant:
    """The first record that is not older than a time, which may differ by partition."""

    everywhere_ms: int | None
    by_partition_ms: Positions
    latest_if_none: bool
    """If all records are older: go to the end instead of refusing."""


Bound = Place | Instant | Positions
"""Positions may be EARLIEST and LATEST."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What to read, by one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    excluded: frozenset[str] = frozenset()
    """Topics that are not meant, though they fit the pattern."""

    def fits(self, topic: str) -> bool:
        """Whether the pattern means it. Topics of Tidelog's own are never meant, as little as those of brokers."""
        if self.pattern is None or topic in self.excluded or topic in OWN_TOPICS:
            return False
        return re.fullmatch(self.pattern, topic) is not None

    def covers(self, at: TopicPartition) -> bool:
        if self.pattern is not None:
            return self.fits(at.topic)
        return at in self.partitions if self.partitions else at.topic in self.topics

    def __str__(self) -> str:
        if self.pattern is not None:
            without = f" but {', '.join(sorted(self.excluded))}" if self.excluded else ""
            return f"topics like {self.pattern}{without}"
        if self.partitions:
            return f"partitions {', '.join(map(str, self.partitions))}"
        return f"topics {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    consumer: ConsumerConfig
    subscription: Subscription
    starting: Bound | None
    """None: the default, which is the end for streams and the beginning for batches."""
    mark: Mark | None
    """Where a stream begins instead, as from a checkpoint: partitions that it does not name are new."""
    ending: Bound
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    push_filters: bool
    """Whether the filters of a query may narrow what is read. Only if every use of a DataFrame has the same ones: Spark
    keeps what was planned for one, and reads the same for all others."""
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    max_bytes: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    group_id: str
    """Whose positions are committed."""
    stalled_ms: int
    """How long a task waits for records that must be there."""
    batch_only: tuple[str, ...]
    stream_only: tuple[str, ...]
    """Names of options that were given and make sense for one of the two only."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        options = Options(given, known=_KNOWN, senseless=_SENSELESS)
        mark = _mark(options)
        starting = _starting(options) if mark is None else None
        refused = dict(_REFUSED)
        if starting is not Place.GROUP:
            refused["auto.offset.reset"] = "startingOffsets says where to begin; only startingOffsets=group may need it"
        consumer = options.client(ConsumerConfig, defaults=_DEFAULTS, refused=refused)
        subscription = _subscription(options)
        if starting is Place.GROUP and consumer.group_id is None:
            raise OptionError("option startingOffsets=group needs kafka.group.id, the group whose positions to take")
        return cls(
            consumer=consumer,
            subscription=subscription,
            starting=starting,
            mark=mark,
            ending=_ending(options),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            columns=_columns(options),
            push_filters=options.flag("pushFilters", False),
            max_offsets=options.number("maxOffsetsPerTrigger"),
            min_offsets=_min_offsets(options),
            max_delay_ms=options.duration_ms("maxTriggerDelay", _MAX_TRIGGER_DELAY_MS),
            max_bytes=options.size_bytes("maxBytesPerTrigger"),
            min_partitions=options.number("minPartitions"),
            max_records_per_partition=options.number("maxRecordsPerPartition"),
            group_id=consumer.group_id or _group_id(options, subscription),
            stalled_ms=options.number("kafkaConsumer.pollTimeoutMs") or _STALLED_MS,
            batch_only=tuple(name for name in _OF_BATCHES if name in options),
            stream_only=tuple(name for name in _STREAMING if name in options),
        )

    @property
    def begins_when_asked(self) -> bool:
        """Whether where a stream begins depends on the moment at which it asks for that."""
        if self.starting is None:
            return self.mark is None
        if isinstance(self.starting, Instant):
            return self.starting.latest_if_none
        if isinstance(self.starting, Place):
            return self.starting is not Place.EARLIEST
        return LATEST in self.starting.values()

    def for_stream(self) -> Self:
        if self.batch_only:
            why = "Spark hands over no filters" if self.batch_only[0] == "pushFilters" else "it has no end"
            raise OptionError(f"option {self.batch_only[0]} makes no sense in a stream: {why}")
        return self

    def for_batch(self) -> Self:
        if self.stream_only:
            raise OptionError(f"option {self.stream_only[0]} makes no sense in a batch: it has no triggers")
        if self.mark is not None:
            raise OptionError(f"option startingOffsets with {TOPIC_IDS} makes no sense in a batch: it is a stream's")
        if self.starting is Place.LATEST or LATEST in _offsets(self.starting):
            raise OptionError("option startingOffsets cannot be the end in a batch: there would be nothing to read")
        if self.ending is Place.EARLIEST or EARLIEST in _offsets(self.ending):
            raise OptionError("option endingOffsets cannot be the beginning: there would be nothing to read")
        return self


def _offsets(bound: Bound | None) -> set[int]:
    return set(bound.values()) if isinstance(bound, dict) else set()


def _subscription(options: Options) -> Subscription:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(ways) != 1:
        found = f"not {' and '.join(ways)} together" if ways else "none of them is given"
        raise OptionError(f"what to read is named by one of subscribe, subscribePattern and assign: {found}")
    text = (options.text(ways[0]) or "").strip()
    if not text:
        raise OptionError(f"option {ways[0]} is empty: name what to read")
    if "excludeTopics" in options and ways[0] != "subscribePattern":
        raise OptionError(f"option excludeTopics makes no sense with {ways[0]}: leave the topics out there")
    if ways[0] == "assign":
        return Subscription(partitions=parse_partitions("assign", text))
    if ways[0] == "subscribe":
        return Subscription(topics=_topics(text))
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option subscribePattern is a regular expression, not {text!r}: {error}") from error
    return Subscription(pattern=text, excluded=frozenset(_topics(options.text("excludeTopics") or "")))


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _starting(options: Options) -> Bound | None:
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    instant = _instant(options, "starting", latest_if_none=strategy == "latest")
    if instant is not None:
        return instant
    return _bound(options, "startingOffsets", (Place.EARLIEST, Place.LATEST, Place.GROUP))


def _mark(options: Options) -> Mark | None:
    """What a checkpoint holds, and other positions do not: the identity of topics."""
    text = options.text("startingOffsets")
    if text is None or f'"{TOPIC_IDS}"' not in text:
        return None
    try:
        mark = Mark.from_document(json.loads(text))
    except (ValueError, ForeignCheckpoint) as error:
        raise OptionError(f"option startingOffsets is not what a checkpoint holds: {text!r}") from error
    if any(offset < 0 for offset in mark.positions.values()):
        raise OptionError(f"option startingOffsets with {TOPIC_IDS} has offsets of at least 0")
    return mark


def _ending(options: Options) -> Bound:
    instant = _instant(options, "ending", latest_if_none=True)
    if instant is not None:
        return instant
    return _bound(options, "endingOffsets", (Place.LATEST, Place.EARLIEST)) or Place.LATEST


def _instant(options: Options, side: str, *, latest_if_none: bool) -> Instant | None:
    """A time for everything wins over times by partition, and these over offsets, as with Spark's Kafka source."""
    everywhere, by_partition = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if everywhere in options:
        return Instant(options.number(everywhere, at_least=0), {}, latest_if_none)
    text = options.text(by_partition)
    if text is None:
        return None
    times = parse_positions(by_partition, text)
    if any(time < 0 for time in times.values()):
        raise OptionError(f"option {by_partition} holds milliseconds since 1970, which are not negative")
    return Instant(None, times, latest_if_none)


def _bound(options: Options, name: str, places: tuple[Place, ...]) -> Bound | None:
    text = options.text(name)
    if text is None:
        return None
    for place in places:
        if text.strip().lower() == place.value:
            return place
    if not text.lstrip().startswith("{"):
        raise OptionError(f"option {name} is {', '.join(place.value for place in places)} or JSON, not {text!r}")
    positions = parse_positions(name, text)
    if any(offset < EARLIEST for offset in positions.values()):
        raise OptionError(f"option {name}: offsets are at least 0, or -1 for the end and -2 for the beginning")
    return positions


def _columns(options: Options) -> tuple[str, ...]:
    with_headers = options.flag("includeHeaders", False)
    text = options.text("columns")
    if text is None:
        return COLUMNS if with_headers else COLUMNS[:-1]
    spelled = {name.lower(): name for name in COLUMNS}
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name.lower() not in spelled]
    if unknown or not wanted:
        raise OptionError(f"option columns is a list of {', '.join(COLUMNS)}, not {text!r}")
    columns = tuple(dict.fromkeys(spelled[name.lower()] for name in wanted))
    if with_headers and "headers" not in columns:
        raise OptionError("option includeHeaders=true and option columns without headers contradict each other")
    return columns


def _min_offsets(options: Options) -> int | None:
    fewest, most = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
    if fewest is not None and most is not None and fewest > most:
        raise OptionError(f"option minOffsetsPerTrigger={fewest} is more than maxOffsetsPerTrigger={most}")
    if fewest is None and "maxTriggerDelay" in options:
        raise OptionError("option maxTriggerDelay makes no sense without minOffsetsPerTrigger, for which it waits")
    return fewest


def _group_id(options: Options, subscription: Subscription) -> str:
    """The same at each start, so that a group goes on where it was; queries that read the same share it."""
    name = hashlib.sha256(str(subscription).encode()).hexdigest()[:12]
    return f"{options.text('groupIdPrefix', _GROUP_ID_PREFIX)}-{name}"
