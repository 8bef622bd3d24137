"""Our source finds what Spark's own Kafka connector and a plain consumer find, on topics that leave nothing out."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from mixed_topics import EAGER_CLEANING, MixedTopics
from peer_brokers import create_on, start_broker
from spark_peers import OURS, THEIRS, consumed_rows, rows_of, stream, streamed_rows, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest_plugins = ["spark_peer_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

SEEDS = (1, 2)


@pytest.fixture(scope="module", params=SEEDS)
def topics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedTopics]:
    broker = start_broker(tmp_path_factory.mktemp("mixed"), EAGER_CLEANING)
    try:
        with MixedTopics(broker, request.param) as made:
            yield made
    finally:
        broker.close()


def bounds(topics: MixedTopics) -> dict[str, dict[str, list[int]]]:
    """By topic and partition, two offsets that may be those of markers, aborted or removed records."""
    ends: dict[str, dict[str, int]] = {
        topic: {str(number): 0 for number in range(count)} for topic, count in topics.partitions.items()
    }
    for row in consumed_rows(topics.broker.bootstrap, topics.partitions):
        ends[row.topic][str(row.partition)] = row.offset + 1
    noise = random.Random(topics.prefix)
    return {
        topic: {number: sorted(noise.randrange(end + 1) for _ in range(2)) for number, end in numbers.items()}
        for topic, numbers in ends.items()
    }


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_whole_topics_are_the_same(spark_with_connector: SparkSession, topics: MixedTopics, level: str) -> None:
    bootstrap = topics.broker.bootstrap
    expected = consumed_rows(bootstrap, topics.partitions, level)
    given = {"subscribePattern": f"{topics.prefix}.*", "kafka.isolation.level": level}
    ours, theirs = (rows_of(table(spark_with_connector, kind, bootstrap, given)) for kind in (OURS, THEIRS))
    assert ours == expected
    assert theirs == expected
    assert {row.timestamp_type for row in ours} == {0, 1}
    assert None in {row.headers for row in ours}
    assert None in {row.value for row in ours}


def test_split_ranges_between_any_offsets_are_the_same(spark_with_connector: SparkSession, topics: MixedTopics) -> None:
    chosen = bounds(topics)
    starts, ends = (
        {topic: {number: both[side] for number, both in numbers.items()} for topic, numbers in chosen.items()}
        for side in (0, 1)
    )
    given = {
        "subscribe": topics.names,
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "minPartitions": 20,
    }
    bootstrap = topics.broker.bootstrap
    expected = [
        row
        for row in consumed_rows(bootstrap, topics.partitions)
        if starts[row.topic][str(row.partition)] <= row.offset < ends[row.topic][str(row.partition)]
    ]
    ours, theirs = (rows_of(table(spark_with_connector, kind, bootstrap, given)) for kind in (OURS, THEIRS))
    assert ours == expected
    assert theirs == expected


def test_ranges_between_times_are_the_same(spark_with_connector: SparkSession, topics: MixedTopics) -> None:
    bootstrap = topics.broker.bootstrap
    times = sorted(row.timestamp_ms for row in consumed_rows(bootstrap, topics.partitions) if not row.timestamp_type)
    noise = random.Random(topics.prefix)
    earlier, later = (times[len(times) // 4], times[3 * len(times) // 4])
    starts = {
        topic: {str(number): earlier + noise.randrange(-500, 500) for number in range(count)}
        for topic, count in topics.partitions.items()
    }
    given = {
        "subscribe": topics.names,
        "startingOffsetsByTimestamp": json.dumps(starts),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": later,
    }
    ours, theirs = (rows_of(table(spark_with_connector, kind, bootstrap, given)) for kind in (OURS, THEIRS))
    assert ours == theirs
    assert ours


def test_streams_in_small_batches_are_the_same(
    spark_with_connector: SparkSession, topics: MixedTopics, tmp_path: Path
) -> None:
    bootstrap = topics.broker.bootstrap
    expected = consumed_rows(bootstrap, topics.partitions)
    given = {"subscribe": topics.names, "maxOffsetsPerTrigger": 300, "minPartitions": 7}
    found = {
        kind: streamed_rows(
            stream(spark_with_connector, kind, bootstrap, given), tmp_path / f"{kind}-{topics.prefix}rows"
        )
        for kind in (OURS, THEIRS)
    }
    assert found[OURS][0] == expected
    assert found[THEIRS][0] == expected
    assert found[OURS][1] > 2


def test_what_is_written_is_the_same(spark_with_connector: SparkSession, topics: MixedTopics, tmp_path: Path) -> None:
    """As tables and as streams; to partitions and topics that columns name, or that keys choose."""
    bootstrap = topics.broker.bootstrap
    written: dict[str, list[tuple[object, ...]]] = {}
    for kind in (OURS, THEIRS):
        names = [f"{kind:_<7}-{topics.prefix}{number}" for number in range(3)]
        for name in names:
            create_on(topics.broker, name, 4)
        target = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}
        rows = table(spark_with_connector, THEIRS, bootstrap, {"subscribe": topics.names})
        placed = rows.where("key IS NULL OR partition = 1").selectExpr(
            "key", "value", "headers", "partition", f"IF(offset % 2 = 0, '{names[0]}', '{names[1]}') AS topic"
        )
        placed.write.format(kind).mode("append").options(**target).save()
        keyed = rows.where("key IS NOT NULL").select("key", "value", "headers")
        keyed.write.format(kind).mode("append").options(**target, topic=names[1]).save()
        query = (
            stream(spark_with_connector, THEIRS, bootstrap, {"subscribe": topics.names, "maxOffsetsPerTrigger": 500})
            .where("key IS NOT NULL")
            .selectExpr("CAST(key AS STRING) AS key", "hex(value) AS value", "headers")
            .writeStream.format(kind)
            .options(**target, topic=names[2], checkpointLocation=str(tmp_path / kind))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = consumed_rows(bootstrap, dict.fromkeys(names, 4))
        contents = [(row.topic[7:], row.partition, row.key, row.value, row.headers) for row in found]
        written[kind] = sorted(contents, key=repr)
    assert written[OURS] == written[THEIRS]
    assert len(written[OURS]) > 500
