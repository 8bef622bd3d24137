"""Pausing, rewinding, deserializing, nearer replicas: the consumer against a broker of a few lines."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import SILENCE, ScriptedBroker

from tidelog.client import (
    ClientError,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    NotReadable,
    OffsetSpec,
    ProducerConfig,
    TopicPartition,
)
from tidelog.client.consumer_settings import ConsumerSettings
from tidelog.client.errors import PositionUnknown
from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.control import Marker, MarkerType, build_marker
from tidelog.records.record import Record
from tidelog.types import BrokerId, ProducerId
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.list_offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T0, T1 = (TopicPartition("t", index) for index in range(2))
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
CONFIG = ConsumerConfig(**QUICK)


def fill(broker: ScriptedBroker, partition: TopicPartition, *values: bytes) -> None:
    for number, value in enumerate(values):
        record = Record(0, 1000 + number, b"%d" % number, value, ())
        broker.append(partition, bytes(build_batch([record])))


def run(scenario: Callable[[ScriptedBroker, Consumer], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with ScriptedBroker({"t": 2}) as broker:
            fill(broker, T0, *(b"%d" % number for number in range(10)))
            fill(broker, T1, *(b"%d" % number for number in range(10)))
            async with Consumer(broker.bootstrap, CONFIG, **settings) as consumer:
                await consumer.assign({T0: 0, T1: 0})
                await scenario(broker, consumer)

    asyncio.run(main())


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += [(record.partition, record.offset) for record in await consumer.poll(max_records=count - len(found))]
    return found


def test_paused_partitions_are_left_out_and_go_on_where_they_were() -> None:
    async def scenario(_broker: ScriptedBroker, consumer: Consumer) -> None:
        record = await anext(aiter(consumer))
        paused = TopicPartition("t", record.partition)
        other = T1 if paused == T0 else T0
        consumer.pause(paused)
        assert consumer.paused == {paused}
        assert await read(consumer, 10) == [(other.partition, offset) for offset in range(10)]
        assert await consumer.poll(0.01) == []
        assert consumer.position(paused) == 1
        consumer.resume(paused)
        assert await read(consumer, 9) == [(paused.partition, offset) for offset in range(1, 10)]

    run(scenario)


def test_everything_can_be_read_again() -> None:
    async def scenario(broker: ScriptedBroker, consumer: Consumer) -> None:
        await read(consumer, 20)
        assert consumer.positions() == {T0: 10, T1: 10}
        await consumer.seek_to_beginning(T0)
        assert consumer.positions() == {T0: 0, T1: 10}
        assert await read(consumer, 10) == [(0, offset) for offset in range(10)]
        await consumer.seek_to_beginning()
        assert consumer.positions() == {T0: 0, T1: 0}
        await consumer.seek_to_end()
        assert consumer.positions() == {T0: 10, T1: 10}
        await consumer.seek_to_timestamp(5000, T1)
        assert broker.requests(ListOffsetsRequest)[-2].topics[0].partitions[0].timestamp == 5000
        assert await consumer.end_offsets([T0]) == {T0: 10}
        assert await consumer.beginning_offsets([T0]) == {T0: 0}
        assert await consumer.offsets_for_times({T0: 5000}) == {T0: None}

    run(scenario)


def test_polls_can_be_sorted_by_partition() -> None:
    async def scenario(_broker: ScriptedBroker, consumer: Consumer) -> None:
        found: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        while sum(map(len, found.values())) < 20:
            for partition, records in (await consumer.poll_by_partition(max_records=3)).items():
                assert len(records) <= 3
                found[partition] += [record.offset for record in records]
        assert found == {T0: list(range(10)), T1: list(range(10))}

    run(scenario)


def test_partitions_of_others_cannot_be_asked_about() -> None:
    async def scenario(_broker: ScriptedBroker, consumer: Consumer) -> None:
        with pytest.raises(ClientError, match="x-0 is not assigned"):
            consumer.position(TopicPartition("x", 0))

    run(scenario)


def test_a_position_that_has_to_be_found_out_is_not_known_before() -> None:
    async def main() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(FindCoordinatorRequest, lambda _request, _before: SILENCE)
            async with Consumer(broker.bootstrap, CONFIG, group_id="mine", enable_auto_commit=False) as consumer:
                await consumer.assign({T0: None})
                with pytest.raises(PositionUnknown):
                    consumer.position(T0)
                assert consumer.positions() == {}

    asyncio.run(main())


def test_values_come_as_they_are_wanted() -> None:
    async def main() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            fill(broker, T0, b'{"n": 1}', b'{"n": 2}')
            consumer: Consumer[str, dict[str, int]] = Consumer(
                broker.bootstrap, CONFIG, key_deserializer=bytes.decode, value_deserializer=json.loads
            )
            async with consumer:
                await consumer.assign({T0: 0})
                async for record in consumer:
                    assert record == ConsumerRecord("t", 0, 0, 1000, "0", {"n": 1}, ())
                    break
                assert [each.value for each in await consumer.poll()] == [{"n": 2}]

    asyncio.run(main())


@pytest.mark.parametrize("iterating", [True, False])
def test_what_cannot_be_deserialized_is_raised_and_can_be_passed_over(iterating: bool) -> None:
    async def main() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            fill(broker, T0, b"1", b"two", b"3")
            consumer: Consumer[bytes, int] = Consumer(broker.bootstrap, CONFIG, value_deserializer=int)
            async with consumer:
                await consumer.assign({T0: 0})

                async def following() -> list[int | None]:
                    if iterating:
                        return [(await anext(aiter(consumer))).value]
                    return [record.value for record in await consumer.poll()]

                assert await following() == [1]
                assert consumer.positions() == {T0: 1}
                with pytest.raises(NotReadable):
                    await following()
                if True:
                    with pytest.raises(
                        NotReadable, match=r"the value of offset 1 in t-0 .* seek to offset 2"
                    ) as caught:
                        await following()
                assert (caught.value.partition, caught.value.offset) == (T0, 1)
                await consumer.seek(T0, 2)
                assert await following() == [3]

    asyncio.run(main())


def test_the_replica_near_by_is_read_and_the_leader_when_that_fails() -> None:
    async def main() -> None:
        async with ScriptedBroker({"t": 1}, node_id=1) as leader, ScriptedBroker({"t": 1}, node_id=2) as near:
            near.topic_ids = leader.topic_ids
            leader.peers.append(near)
            fill(leader, T0, b"0", b"1", b"2", b"3")
            fill(near, T0, b"0", b"1")

            def send_away(request: FetchRequest, before: int) -> FetchResponse | None:
                assert request.rack_id == "here"
                return answer(request, preferred=2) if before == 0 else None

            def fail_at_the_end(request: FetchRequest, _before: int) -> FetchResponse | None:
                if request.topics[0].partitions[0].fetch_offset < 2:
                    return None
                return answer(request, code=ErrorCode.OFFSET_OUT_OF_RANGE)

            leader.on(FetchRequest, send_away)
            near.on(FetchRequest, fail_at_the_end)
            async with Consumer(leader.bootstrap, CONFIG, client_rack="here") as consumer:
                await consumer.assign({T0: 0})
                assert await read(consumer, 4) == [(0, offset) for offset in range(4)]
            asked = [request.topics[0].partitions[0].fetch_offset for request in leader.requests(FetchRequest)]
            assert asked[:2] == [0, 2]

    asyncio.run(main())


def answer(request: FetchRequest, *, preferred: int = -1, code: int = 0) -> FetchResponse:
    topic = request.topics[0]
    data = PartitionData(
        partition_index=topic.partitions[0].partition,
        error_code=code,
        high_watermark=4,
        aborted_transactions=None,
        preferred_read_replica=BrokerId(preferred),
        records=b"",
    )
    return FetchResponse(
        throttle_time_ms=0,
        responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])],
    )


@pytest.mark.parametrize(
    ("level", "shown"), [("read_committed", [b"done", b"after"]), ("read_uncommitted", [b"undone", b"done", b"after"])]
)
def test_aborted_transactions_are_not_shown_to_who_wants_it_so(level: Any, shown: list[bytes]) -> None:
    producer = ProducerId(7)

    def transactional(value: bytes) -> bytes:
        record = Record(0, 1000, None, value, ())
        return bytes(build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True))

    def marker(kind: MarkerType) -> bytes:
        return bytes(build_marker(Marker(kind, 0), producer_id=producer, producer_epoch=0, timestamp_ms=1000))

    async def main() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            for batch in (transactional(b"undone"), marker(MarkerType.ABORT), transactional(b"done")):
                broker.append(T0, batch)
            broker.append(T0, marker(MarkerType.COMMIT))
            fill(broker, T0, b"after")

            def with_aborted(request: FetchRequest, _before: int) -> FetchResponse | None:
                assert request.isolation_level == (level == "read_committed")
                reply, _size = broker._fetch_now(request)
                for data in reply.responses[0].partitions:
                    data.aborted_transactions = [AbortedTransaction(producer_id=producer, first_offset=0)]
                return reply if request.topics[0].partitions[0].fetch_offset < 5 else None

            broker.on(FetchRequest, with_aborted)
            async with Consumer(broker.bootstrap, CONFIG, isolation_level=level) as consumer:
                await consumer.assign({T0: 0})
                found: list[bytes | None] = []
                while len(found) < len(shown):
                    found += [record.value for record in await consumer.poll()]
                assert found == shown
                assert consumer.position(T0) == 5

    asyncio.run(main())


def test_settings_can_be_keywords_a_config_or_kafkas_own() -> None:
    async def main() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            fill(broker, T0, b"0")
            kafka = {"bootstrap.servers": broker.bootstrap, "fetch.max.wait.ms": "10", "check.crcs": "false"}
            config = ConsumerConfig.from_kafka(kafka)
            async with Consumer(config, client_id="me") as consumer:
                assert (consumer.config.fetch_max_wait_ms, consumer.config.check_crcs) == (10, False)
                assert consumer.config.client_id == "me"
                await consumer.assign_topics(["t"], OffsetSpec.earliest())
                assert await read(consumer, 1) == [(0, 0)]

    asyncio.run(main())


def test_keywords_and_config_know_the_same_settings() -> None:
    known = {field.name for field in fields(ConsumerConfig)}
    assert set(ConsumerSettings.__annotations__) == known - {"bootstrap_servers"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"group.idd": "g"}, "no setting group.idd"),
        ({"fetch.min.bytes": "many"}, "fetch.min.bytes=many makes no sense: a number"),
        ({"enable.auto.commit": "perhaps"}, "true or false"),
        ({"isolation.level": "read_all"}, "read_uncommitted or read_committed"),
        ({"partition.assignment.strategy": "fair"}, "partition_assignment_strategy is of range"),
        ({"group.id": ""}, "must not be empty"),
        ({"heartbeat.interval.ms": "60000"}, "below session_timeout_ms"),
        ({"prefetch.max.bytes": "0"}, "prefetch_max_bytes must be positive"),
        ({"group.protocol": "new"}, "classic or consumer"),
    ],
)
def test_bad_settings_say_what_is_wrong(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ConsumerConfig.from_kafka(settings)


def test_kafkas_settings_are_read_as_what_they_are() -> None:
    config = ConsumerConfig.from_kafka(
        {"group.id": "7", "partition.assignment.strategy": "range, sticky", "max.poll.records": 9}
    )
    assert (config.group_id, config.assignors, config.max_poll_records) == ("7", ("range", "sticky"), 9)
    assert ConsumerConfig(partition_assignment_strategy="sticky").assignors == ("sticky",)
    assert ProducerConfig.from_kafka({"acks": "1"}).acks == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"topics": "t"}, r"write \['t'\]"),
        ({"topics": ["t"], "pattern": "t.*"}, "not to both"),
    ],
)
def test_subscriptions_that_cannot_be_meant_are_refused(arguments: dict[str, Any], reason: str) -> None:
    async def main() -> None:
        with pytest.raises((TypeError, ValueError), match=reason):
            Consumer("localhost", group_id="g", **arguments)

    asyncio.run(main())


def test_where_to_begin_depends_on_being_in_a_group() -> None:
    assert ConsumerConfig().reset == "none"
    assert ConsumerConfig(group_id="g").reset == "latest"
    assert ConsumerConfig(group_id="g", auto_offset_reset="earliest").reset == "earliest"
