"""Options: what they mean, and what is said about those that cannot be meant."""

from __future__ import annotations

import pickle

import pytest

from tidelog.pipelines.options import OptionError, Options
from tidelog.pipelines.source.options import COLUMNS, Instant, Place, SourceOptions, Subscription
from tidelog.pipelines.source.positions import named, parse_partitions, parse_positions, to_document
from tidelog.pipelines.source.schema import schema_of
from tidelog.types import TopicPartition

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**BROKERS, "subscribe": "orders"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({**ORDERS, **{name.replace("__", "."): value for name, value in options.items()}})


def test_defaults() -> None:
    options = parse()
    assert options.subscription == Subscription(topics=("orders",))
    assert options.starting is None
    assert options.ending is Place.LATEST
    assert options.fail_on_data_loss
    assert options.columns == COLUMNS[:-1]
    assert options.consumer.isolation_level == "read_committed"
    assert (options.max_offsets, options.min_offsets, options.max_bytes) == (None, None, None)
    assert (options.min_partitions, options.max_records_per_partition) == (None, None)
    assert pickle.loads(pickle.dumps(options)) == options


def test_options_of_spark_are_understood_in_any_case() -> None:
    options = SourceOptions.parse(
        {
            "KAFKA.bootstrap.servers": "localhost:9092",
            "SUBSCRIBE": "a, b,a",
            "startingoffsets": "Earliest",
            "failondataloss": "FALSE",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "5m",
            "maxBytesPerTrigger": "64m",
            "minPartitions": "4",
            "maxRecordsPerPartition": "1000",
            "includeHeaders": "true",
            "kafka.client.rack": "here",
            "kafkaConsumer.pollTimeoutMs": "1234",
        }
    )
    assert options.subscription.topics == ("a", "b")
    assert options.starting is Place.EARLIEST
    assert not options.fail_on_data_loss
    assert (options.max_offsets, options.min_offsets, options.max_delay_ms) == (100, 10, 300_000)
    assert options.max_bytes == 64 << 20
    assert (options.min_partitions, options.max_records_per_partition) == (4, 1000)
    assert options.columns == COLUMNS
    assert options.consumer.client_rack == "here"
    assert options.stalled_ms == 1234


def test_where_to_begin_and_end() -> None:
    at = TopicPartition("orders", 0)
    assert parse(startingOffsets='{"orders": {"0": 5}}').starting == {at: 5}
    assert parse(startingTimestamp="7", startingOffsets="earliest").starting == Instant(7, {}, latest_if_none=False)
    by_time = parse(startingOffsetsByTimestamp='{"orders": {"0": 9}}', startingOffsetsByTimestampStrategy="latest")
    assert by_time.starting == Instant(None, {at: 9}, latest_if_none=True)
    assert parse(endingTimestamp="7").ending == Instant(7, {}, latest_if_none=True)
    assert parse(startingOffsets="group", kafka__group__id="g").starting is Place.GROUP


def test_groups_are_named() -> None:
    assert parse(kafka__group__id="g").group_id == "g"
    mine = parse().group_id
    assert mine.startswith("tidelog-spark-source-")
    assert parse().group_id == mine
    assert parse(subscribe="others").group_id != mine
    assert parse(groupIdPrefix="billing").group_id == mine.replace("tidelog-spark-source", "billing")


def test_patterns_do_not_mean_what_is_excluded_or_our_own() -> None:
    given = {**BROKERS, "subscribePattern": ".*"}
    every = SourceOptions.parse(given).subscription
    assert every.fits("shop.orders")
    assert not every.fits("__tidelog_decisions")
    assert not every.covers(TopicPartition("__tidelog_decisions", 0))
    most = SourceOptions.parse({**given, "excludeTopics": "shop.dead-letters, b"}).subscription
    assert [topic for topic in ("shop.orders", "shop.dead-letters", "b", "bb") if most.fits(topic)] == [
        "shop.orders",
        "bb",
    ]
    assert str(most) == "topics like .* but b, shop.dead-letters"


def test_the_schema_is_that_of_the_options() -> None:
    assert schema_of(ORDERS).fieldNames() == list(COLUMNS[:-1])
    assert schema_of({**ORDERS, "columns": "headers,offset"}).fieldNames() == ["headers", "offset"]
    assert all(field.nullable for field in schema_of(ORDERS).fields)


WRONG = [
    ({"subscribe": "a"}, "option kafka.bootstrap.servers is missing"),
    ({"bootstrap.servers": "x", "subscribe": "a"}, "no option bootstrap.servers: write kafka.bootstrap.servers"),
    ({**ORDERS, "group.id": "g"}, "there is no option group.id: write kafka.group.id"),
    ({**ORDERS, "startingOffset": "x"}, "there is no option startingOffset: did you mean startingOffsets?"),
    ({**ORDERS, "maxoffsetpertrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
    ({**ORDERS, "zebra": "x"}, "there is no option zebra: there are assign, columns"),
    ({**ORDERS, "kafka.fetch.max.byte": "1"}, "no option kafka.fetch.max.byte: did you mean kafka.fetch.max.bytes?"),
    ({**ORDERS, "kafka.fetch.max.bytes": "many"}, "fetch.max.bytes=many makes no sense: a number is expected"),
    ({**ORDERS, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set: Spark keeps"),
    ({**ORDERS, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set: startingOffsets"),
    ({**ORDERS, "kafka.key.deserializer": "X"}, "kafka.key.deserializer cannot be set: key and value are always"),
    ({**ORDERS, "fetchOffset.numRetries": "3"}, "fetchOffset.numRetries makes no sense here: the client tries again"),
    ({**ORDERS, "path": "/x"}, "option path makes no sense here: topics have no path"),
    ({**ORDERS, "topic": "x"}, "option topic makes no sense here"),
    (BROKERS, "one of subscribe, subscribePattern and assign: none of them"),
    ({**ORDERS, "assign": "{}"}, "not assign and subscribe together"),
    ({**BROKERS, "subscribe": " "}, "option subscribe is empty"),
    ({**BROKERS, "subscribePattern": "("}, "option subscribePattern is a regular expression"),
    ({**ORDERS, "excludeTopics": "a"}, "option excludeTopics makes no sense with subscribe"),
    ({**BROKERS, "assign": '{"a": 1}'}, "option assign is JSON such as"),
    ({**BROKERS, "assign": "a"}, "option assign is JSON such as"),
    ({**BROKERS, "assign": '{"a": [-1]}'}, "option assign is JSON such as"),
    ({**ORDERS, "startingOffsets": "first"}, "option startingOffsets is earliest, latest, group or JSON, not 'first'"),
    ({**ORDERS, "startingOffsets": "{"}, "option startingOffsets is JSON such as"),
    ({**ORDERS, "startingOffsets": '{"a": {"x": 1}}'}, "'x': 1 of a is not a partition's offset"),
    ({**ORDERS, "startingOffsets": '{"a": {"0": -3}}'}, "offsets are at least 0, or -1 for the end"),
    ({**ORDERS, "startingOffsets": "group"}, "startingOffsets=group needs kafka.group.id"),
    ({**ORDERS, "startingTimestamp": "yesterday"}, "option startingTimestamp is a whole number of at least 0"),
    ({**ORDERS, "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "holds milliseconds since 1970"),
    ({**ORDERS, "startingOffsetsByTimestampStrategy": "x"}, "Strategy is error or latest, not 'x'"),
    ({**ORDERS, "failOnDataLoss": "maybe"}, "option failOnDataLoss is true or false, not 'maybe'"),
    ({**ORDERS, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number of at least 1, not '0'"),
    ({**ORDERS, "minPartitions": "1.5"}, "option minPartitions is a whole number of at least 1"),
    ({**ORDERS, "maxBytesPerTrigger": "lots"}, "option maxBytesPerTrigger is a size such as 64m, not 'lots'"),
    ({**ORDERS, "maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger is a size such as 64m, not '0'"),
    ({**ORDERS, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger=9 is more than"),
    ({**ORDERS, "maxTriggerDelay": "1s"}, "maxTriggerDelay makes no sense without minOffsetsPerTrigger"),
    ({**ORDERS, "minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "maxTriggerDelay is a time such as 15m"),
    ({**ORDERS, "columns": "value,amount"}, "option columns is a list of key, value"),
    ({**ORDERS, "columns": "value", "includeHeaders": "true"}, "contradict each other"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_meant_is_refused_in_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse(options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be the end in a batch"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets cannot be the end in a batch"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be the beginning"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets cannot be the beginning"),
        ({"maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger makes no sense in a batch"),
    ],
)
def test_what_a_batch_cannot_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options).for_batch()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_what_a_stream_cannot_do(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "1"}.get(name, '{"orders": {"0": 1}}')
    with pytest.raises(OptionError, match=f"{name} makes no sense in a stream"):
        parse(**{name: value}).for_stream()


def test_options_that_spark_adds_may_be_ignored() -> None:
    options = Options({**BROKERS, "checkpointlocation": "/x"}, known=["topic"], ignored=["checkpointLocation"])
    assert "topic" not in options
    assert options.names == ["kafka.*", "topic"]


def test_positions_are_written_as_spark_writes_them() -> None:
    positions = {TopicPartition("b", 1): 3, TopicPartition("a", 10): 2, TopicPartition("b", 0): 1}
    document = {"a": {"10": 2}, "b": {"0": 1, "1": 3}}
    assert to_document(positions) == document
    assert list(to_document(positions)) == ["a", "b"]
    assert parse_positions("startingOffsets", '{"a": {"10": 2}, "b": {"0": 1, "1": 3}}') == positions
    assert parse_partitions("assign", '{"a": [1, 0, 1]}') == (TopicPartition("a", 0), TopicPartition("a", 1))
    many = {TopicPartition("t", index): 0 for index in range(7)}
    assert named(many).endswith("t-4 at offset 0 and 2 more")
