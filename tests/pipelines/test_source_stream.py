"""Topics as streams, without Spark: batch after batch, with what happens to topics meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from source_driving import (
    Query,
    create,
    everything,
    numbers,
    produce,
    produce_transaction,
    source,
    stop_readers,
    stream_reader,
    values,
    with_admin,
)

from tidelog.client import Admin, Consumer, Producer, TopicPartition
from tidelog.pipelines.options import OptionError
from tidelog.pipelines.source.errors import DataLost, SourceError
from tidelog.pipelines.source.marks import BEGAN, TOPIC_IDS
from tidelog.pipelines.source.options import SourceOptions
from tidelog.pipelines.source.stream_planning import StreamPlanner
from tidelog.testing.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import StartBroker


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    stop_readers()


class ManualClock:
    at_s = 1000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic(self) -> float:
        return self.at_s


def offsets(document: dict[str, Any] | None) -> dict[str, dict[str, int]]:
    return {topic: offsets for topic, offsets in (document or {}).items() if topic not in {TOPIC_IDS, BEGAN}}


def test_batches_follow_each_other(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest"))
    assert offsets(query.start) == {topic: {"0": 0}}
    assert values(query.next_batch()) == numbers(0, 5)
    assert offsets(query.start) == {topic: {"0": 5}}
    produce(bootstrap, topic, numbers(5, 8))
    assert values(query.next_batch()) == numbers(5, 8)
    assert offsets(query.reader.reportLatestOffset()) == {topic: {"0": 8}}
    query.reader.stop()


def test_a_stream_begins_at_the_end_unless_told_otherwise(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    query = Query(stream_reader(bootstrap, subscribe=topic))
    produce(bootstrap, topic, numbers(5, 7))
    assert values(query.next_batch()) == numbers(5, 7)
    begin = f'{{"{topic}": {{"0": 3}}}}'
    assert values(Query(stream_reader(bootstrap, subscribe=topic, startingOffsets=begin)).next_batch()) == numbers(3, 7)


@pytest.mark.parametrize("place", ["latest", "earliest"])
def test_where_a_stream_begins_is_settled_once(bootstrap: str, topic: str, place: str) -> None:
    """Spark asks twice before the first batch, and again when it repeats that after a restart."""
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets=place))
    expected = numbers(5 if place == "latest" else 0, 7)
    produce(bootstrap, topic, numbers(5, 7))
    planned = query.plan()
    assert planned is not None
    produce(bootstrap, topic, numbers(7, 12))
    assert values(query.read(query.reader.initialOffset(), planned[1])) == expected
    after_restart = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets=place))
    assert values(after_restart.read(after_restart.start, planned[1])) == expected
    after_restart.start = planned[1]
    assert values(after_restart.next_batch()) == numbers(7, 12)
    assert values(query.read(planned[1], after_restart.start)) == numbers(7, 12)


def test_a_first_batch_of_nothing_is_a_beginning_too(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    query = Query(stream_reader(bootstrap, subscribe=topic))
    empty = query.start
    produce(bootstrap, topic, numbers(5, 7))
    after_restart = Query(stream_reader(bootstrap, subscribe=topic))
    assert after_restart.read(after_restart.start, empty) == []
    after_restart.start = empty
    assert values(after_restart.next_batch()) == numbers(5, 7)


def test_a_batch_can_be_read_again(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest"))
    planned = query.plan()
    assert planned is not None
    produce(bootstrap, topic, numbers(5, 9))
    # After a restart Spark asks for the tasks of a planned batch before anything else.
    again = Query(stream_reader(bootstrap, subscribe=topic), start=planned[0])
    assert values(again.read(*planned)) == values(query.read(*planned)) == numbers(0, 5)


def test_open_transactions_are_waited_for(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    query = Query(stream_reader(bootstrap, subscribe=topic))

    async def scenario() -> None:
        async with Producer(bootstrap, transactional_id=topic) as producer:
            await producer.begin()
            await producer.send_and_wait(topic, b"in a transaction", partition=0)
            assert await asyncio.to_thread(query.step) is None
            await producer.commit()

    asyncio.run(scenario())
    assert values(query.next_batch()) == [b"in a transaction"]
    produce_transaction(bootstrap, topic, [b"aborted"], commit=False)
    assert query.next_batch() == []


def test_brokers_are_left_alone_while_nothing_comes(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    clock = ManualClock()
    made = source(bootstrap, subscribe=topic)
    planner = StreamPlanner(SourceOptions.parse(made.options).for_stream(), clock)
    start = planner.initial()

    def asked() -> int:
        return planner._connections.cluster.metrics().requests_sent

    before = asked()
    for _ in range(1000):
        assert planner.latest(start, unlimited=True) == start
        clock.at_s += 0.001
    assert 40 <= asked() - before <= 55
    produce(bootstrap, topic, [b"new"])
    clock.at_s += 0.025
    assert planner.latest(start, unlimited=True) != start
    planner.close()


# Limits


def test_what_waits_is_taken_in_proportion(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    produce(bootstrap, topic, numbers(0, 90), partition=0)
    produce(bootstrap, topic, numbers(0, 10), partition=1)
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query = Query(reader)
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    assert len(query.next_batch()) == 20
    assert offsets(query.start) == {topic: {"0": 18, "1": 2}}
    assert offsets(everything(reader, query.start)) == {topic: {"0": 90, "1": 10}}


def test_bytes_are_limited(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    for _ in range(4):
        produce(bootstrap, topic, [b"x" * 1000] * 50)
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="20k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(20 << 10)
    query = Query(reader)
    assert 15 <= len(query.next_batch()) <= 21
    read = 20
    while (rows := query.step()) is not None:
        read += len(rows)
        assert len(rows) <= 25
    assert 195 <= read <= 205


@pytest.mark.parametrize("batch_size", [1 << 10, 16 << 10, 128 << 10, 1 << 20])
def test_limits_that_end_within_record_batches_are_made_use_of(bootstrap: str, topic: str, batch_size: int) -> None:
    """Record batches smaller than the limit, about as large, and with all records in one."""
    create(bootstrap, topic)
    count, size, limit = 4000, 100, 100 << 10
    produce(bootstrap, topic, [b"x" * size] * count, batch_size=batch_size, linger_ms=1000)
    query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=limit))
    rows = []
    while (some := query.step()) is not None:
        rows.append(len(some))
    assert sum(rows) == count
    assert max(rows) * size <= limit
    # Each record takes a few bytes more than its value.
    assert len(rows) <= count * (size + 15) / limit + 2, rows


def test_few_records_are_held_back(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 10}
    reader = stream_reader(bootstrap, **options)
    assert reader.getDefaultReadLimit() == ReadMinRows(10)
    query = Query(reader)
    produce(bootstrap, topic, numbers(0, 1))
    assert len(query.next_batch()) == 1  # nobody knows how long it has waited
    produce(bootstrap, topic, numbers(1, 6))
    assert [query.step() for _ in range(5)] == [None] * 5
    produce(bootstrap, topic, numbers(6, 11))
    assert len(query.next_batch()) == 10
    produce(bootstrap, topic, numbers(11, 12))
    impatient = Query(stream_reader(bootstrap, **options, maxTriggerDelay="1ms"), start=query.start)
    assert len(impatient.next_batch()) == 1
    assert offsets(everything(reader, {topic: {"0": 11}})) == {topic: {"0": 12}}


def test_without_limits_everything_is_taken(bootstrap: str) -> None:
    assert stream_reader(bootstrap, subscribe="any").getDefaultReadLimit() == ReadAllAvailable()


def test_what_is_available_now_is_the_end(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 25))
    reader = stream_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10, minOffsetsPerTrigger=10
    )
    reader.prepareForTriggerAvailableNow()
    produce(bootstrap, topic, numbers(25, 50))
    query = Query(reader)
    with_admin(bootstrap, lambda admin: admin.add_partitions(topic, 2))
    produce(bootstrap, topic, [b"in the new one"], partition=1)
    batches = [query.step() for _ in range(4)]
    assert [None if batch is None else len(batch) for batch in batches] == [10, 10, 5, None]


# Topics come and go


def test_new_partitions_and_topics_are_read_from_their_beginning(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    query = Query(stream_reader(bootstrap, subscribePattern=f"{topic}.*"))
    with_admin(bootstrap, lambda admin: admin.add_partitions(topic, 2))
    create(bootstrap, f"{topic}-new")
    produce(bootstrap, topic, [b"new partition"], partition=1)
    produce(bootstrap, f"{topic}-new", [b"new topic"])
    found: list[bytes] = []
    while len(found) < 2:
        found += values(query.next_batch())
    assert sorted(found) == [b"new partition", b"new topic"]
    assert offsets(query.start) == {topic: {"0": 0, "1": 1}, f"{topic}-new": {"0": 1}}


def until_lost(query: Query, message: str) -> None:
    def run() -> None:
        while True:
            query.step()

    with pytest.raises(DataLost, match=message):
        run()


@pytest.mark.parametrize("count", [3, 50])
def test_a_topic_created_anew_is_noticed(
    bootstrap: str, topic: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    queries = [
        Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail))
        for fail in ("true", "false")
    ]
    for query in queries:
        query.next_batch()
    with_admin(bootstrap, lambda admin: admin.delete_topic(topic))
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, count))
    until_lost(queries[0], f"{topic}-0: .* topic {topic} (was|has been) deleted and created anew")
    found: list[bytes] = []
    while len(found) < count:
        found += values(queries[1].next_batch())
    assert found == numbers(0, count)
    assert "DATA LOSS" in caplog.text
    assert queries[1].step() is None


def test_a_deleted_topic_is_noticed(bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    create(bootstrap, topic)
    create(bootstrap, f"{topic}-other")
    produce(bootstrap, topic, numbers(0, 10))
    pattern = f"{topic}.*"
    queries = [
        Query(stream_reader(bootstrap, subscribePattern=pattern, startingOffsets="earliest", failOnDataLoss=fail))
        for fail in ("true", "false")
    ]
    for query in queries:
        query.next_batch()
    with_admin(bootstrap, lambda admin: admin.delete_topic(topic))
    until_lost(queries[0], f"{topic}-0: reading has come to offset 10, but the partition does not exist any more")
    assert queries[1].next_batch() == []
    assert offsets(queries[1].start) == {f"{topic}-other": {"0": 0}}
    assert "DATA LOSS" in caplog.text


def test_records_deleted_while_a_query_was_down(bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    with_admin(bootstrap, lambda admin: admin.delete_records({TopicPartition(topic, 0): 6}))
    start = {topic: {"0": 2}}
    strict = Query(stream_reader(bootstrap, subscribe=topic), start=start)
    until_lost(strict, f"{topic}-0: offsets 2 to 5 were to be read, but the partition now begins at offset 6")
    lenient = Query(stream_reader(bootstrap, subscribe=topic, failOnDataLoss="false"), start=start)
    assert values(lenient.next_batch()) == numbers(6, 10)
    assert "DATA LOSS" in caplog.text


def test_a_checkpoint_beyond_the_end(bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    start = {topic: {"0": 20}}
    strict = Query(stream_reader(bootstrap, subscribe=topic, kafka__retry__backoff__ms=1), start=start)
    until_lost(strict, f"{topic}-0: reading has come to offset 20, but the partition now ends at offset 10")
    lenient = Query(
        stream_reader(bootstrap, subscribe=topic, failOnDataLoss="false", kafka__retry__backoff__ms=1), start=start
    )
    assert values(lenient.next_batch()) == numbers(0, 10)
    assert "DATA LOSS" in caplog.text


@pytest.mark.parametrize("offset", [7, 50])
def test_a_place_to_begin_has_to_exist(bootstrap: str, topic: str, offset: int) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 20))
    with_admin(bootstrap, lambda admin: admin.delete_records({TopicPartition(topic, 0): 10}))
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": {offset}}}}}')
    with pytest.raises(DataLost, match=f"{topic}-0: "):
        reader.initialOffset()


def test_a_topic_that_does_not_exist_is_named(bootstrap: str, topic: str) -> None:
    with pytest.raises(SourceError, match=f"topic {topic} does not exist"):
        stream_reader(bootstrap, subscribe=topic).initialOffset()


def test_a_stream_has_no_end(bootstrap: str) -> None:
    with pytest.raises(OptionError, match="endingOffsets makes no sense in a stream"):
        stream_reader(bootstrap, subscribe="any", endingOffsets="latest")


# Groups


def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    async def ask(admin: Admin) -> dict[TopicPartition, int]:
        return {at: commit.offset for at, commit in (await admin.list_group_offsets(group)).items()}

    found: dict[TopicPartition, int] = with_admin(bootstrap, ask)
    return found


def test_positions_are_committed_when_they_are_done(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    group = f"group of {topic}"
    query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest", kafka__group__id=group))
    query.next_batch()
    at = TopicPartition(topic, 0)
    eventually(lambda: committed(bootstrap, group) == {at: 0}, "the commit of where it began")
    assert query.step() is None  # asking for more says that the batch is done
    query.reader.stop()
    assert committed(bootstrap, group) == {at: 5}
    produce(bootstrap, topic, numbers(5, 7))
    follower = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="group", kafka__group__id=group))
    assert values(follower.next_batch()) == numbers(5, 7)


def test_a_group_is_named_by_what_is_read(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    query = Query(stream_reader(bootstrap, subscribe=topic, groupIdPrefix=f"prefix-{topic}"))
    query.step()
    query.reader.stop()

    async def groups(admin: Admin) -> list[str]:
        return [group.group_id for group in await admin.list_groups() if topic in group.group_id]

    (name,) = with_admin(bootstrap, groups)
    assert name.startswith(f"prefix-{topic}-")
    assert committed(bootstrap, name) == {TopicPartition(topic, 0): 0}


def test_a_commit_that_fails_does_not_stop_the_query(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))

    async def scenario() -> None:
        async with Consumer(bootstrap, group_id=topic, topics=[topic], auto_offset_reset="earliest") as member:
            await member.poll(timeout_s=10)
            await asyncio.to_thread(work)

    def work() -> None:
        query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest", kafka__group__id=topic))
        assert values(query.next_batch()) == numbers(0, 5)
        assert query.step() is None
        query.reader.stop()

    asyncio.run(scenario())
    assert f"positions could not be committed to group {topic}, the query goes on" in caplog.text


def test_a_broker_that_restarts_is_waited_for(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, numbers(0, 5))
    query = Query(stream_reader(broker.bootstrap, subscribe=topic, startingOffsets="earliest"))
    planned = query.plan()
    assert planned is not None
    broker.restart()
    assert values(query.read(*planned)) == numbers(0, 5)
    query.start = planned[1]
    produce(broker.bootstrap, topic, numbers(5, 6))
    assert values(query.next_batch()) == numbers(5, 6)
