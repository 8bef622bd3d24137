"""The producer against a broker that misbehaves on purpose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import HANG_UP, SILENCE, Misdeed, ScriptedBroker

from tidelog.client.config import ProducerConfig
from tidelog.client.errors import BrokersUnreachable, Closed, NotSupported, RecordTooLarge, TimedOut
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import BatchHeader, peek
from tidelog.records.record import iter_records
from tidelog.types import TopicPartition
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.wire.declare import Message

T0 = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "linger_ms": 0}
CONFIG = ProducerConfig(**QUICK)


def refusing(code: ErrorCode, times: int = 1, message: str | None = None) -> Callable[[ProduceRequest, int], Any]:
    """Refuses the first so many produce requests without storing anything."""

    def react(request: ProduceRequest, before: int) -> Message | None:
        if before >= times:
            return None
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=message)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=topics)

    return react


def headers_of(broker: ScriptedBroker) -> list[BatchHeader]:
    return [
        peek(data.records)  # type: ignore[arg-type]
        for request in broker.requests(ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def stored_values(broker: ScriptedBroker, partition: TopicPartition = T0) -> list[bytes | None]:
    return [record.value for batch in broker.logs[partition] for record in iter_records(batch)]


def test_a_record_is_stored_and_its_place_is_told() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Producer(broker.bootstrap, CONFIG) as producer:
            headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("n", None)]
            stored = await producer.send_and_wait("t", b"v", key=b"k", headers=headers, timestamp_ms=77)
            assert stored == ("t", 0, 0, 77)
            (record,) = iter_records(broker.logs[T0][0])
            assert tuple(record) == (0, 77, b"k", b"v", (("h", b"1"), ("n", None)))
            assert (await producer.send_and_wait("t", None)).offset == 1

    asyncio.run(scenario())


def test_records_sent_together_travel_together_and_in_order() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            config = ProducerConfig(**{**QUICK, "linger_ms": 60_000})
            async with Producer(broker.bootstrap, config) as producer:
                deliveries = [await producer.send("t", b"%d" % number) for number in range(500)]
                assert not broker.requests(ProduceRequest), "they linger"
                await producer.flush()
            assert [(await delivery).offset for delivery in deliveries] == list(range(500))
            assert stored_values(broker) == [b"%d" % number for number in range(500)]
            assert len(broker.requests(ProduceRequest)) == 1

    asyncio.run(scenario())


def test_leaving_the_block_delivers_what_is_buffered() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            async with Producer(broker.bootstrap, ProducerConfig(linger_ms=60_000)) as producer:
                await producer.send("t", b"last")
            assert stored_values(broker) == [b"last"]

    asyncio.run(scenario())


@pytest.mark.parametrize("misdeed", [HANG_UP, SILENCE])
def test_a_lost_answer_repeats_the_same_batch(misdeed: Misdeed) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(ProduceRequest, lambda _request, before: misdeed if before == 0 else None)
            config = ProducerConfig(**QUICK, request_timeout_ms=100)
            async with Producer(broker.bootstrap, config) as producer:
                first = await producer.send("t", b"1")
                second = await producer.send("t", b"2")
                assert (await first).offset < (await second).offset
            sent = headers_of(broker)
            assert sent[0] == sent[1], "a repetition is the same bytes, or the broker could not know it for one"
            assert [header.base_sequence for header in sent[1:]] == list(range(len(sent) - 1))
            assert {header.producer_id for header in sent} == {1001}
            assert stored_values(broker) == [b"1", b"2"]

    asyncio.run(scenario())


def test_order_holds_through_refusals() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            refuse = refusing(ErrorCode.NOT_ENOUGH_REPLICAS)
            broker.on(ProduceRequest, lambda request, before: refuse(request, before % 3 % 2))
            async with Producer(broker.bootstrap, ProducerConfig(**QUICK, batch_size=200)) as producer:
                for number in range(300):
                    await producer.send("t", b"%03d" % number)
            assert stored_values(broker) == [b"%03d" % number for number in range(300)]

    asyncio.run(scenario())


def test_the_new_leader_is_found() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}, node_id=1) as old, ScriptedBroker({"t": 1}, node_id=2) as new:
            new.topic_ids = old.topic_ids
            old.peers.append(new)

            def deposed(request: ProduceRequest, _before: int) -> Message:
                old.leaders[T0] = 2
                old.leader_epoch = 1
                return refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request, 0)  # type: ignore[no-any-return]

            old.on(ProduceRequest, deposed)
            async with Producer(old.bootstrap, CONFIG) as producer:
                assert (await producer.send_and_wait("t", b"v")).offset == 0
            assert stored_values(new) == [b"v"]

    asyncio.run(scenario())


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:

            def small_only(request: ProduceRequest, _before: int) -> Message | None:
                records = request.topic_data[0].partition_data[0].records
                too_large = peek(records).record_count > 2  # type: ignore[arg-type]
                return refusing(ErrorCode.MESSAGE_TOO_LARGE)(request, 0) if too_large else None

            broker.on(ProduceRequest, small_only)
            config = ProducerConfig(**{**QUICK, "linger_ms": 60_000})
            async with Producer(broker.bootstrap, config) as producer:
                deliveries = [await producer.send("t", b"%d" % number) for number in range(9)]
                await producer.flush()
            assert [(await delivery).offset for delivery in deliveries] == list(range(9))
            assert stored_values(broker) == [b"%d" % number for number in range(9)]
            stored = [peek(batch) for batch in broker.logs[T0]]
            assert [header.base_sequence for header in stored] == [header.base_offset for header in stored]

    asyncio.run(scenario())


def test_a_single_record_that_is_too_large_fails() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(ProduceRequest, refusing(ErrorCode.MESSAGE_TOO_LARGE, message="at most 10 bytes"))
            async with Producer(broker.bootstrap, CONFIG) as producer:
                with pytest.raises(BrokerError, match="t-0: at most 10 bytes"):
                    await producer.send_and_wait("t", b"v")
                assert (await producer.send_and_wait("t", b"w")).offset == 0
            assert [header.base_sequence for header in headers_of(broker)] == [0, 0], "the refused one used no sequence"

    asyncio.run(scenario())


def test_a_broker_that_lost_track_gets_a_new_producer_id() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            async with Producer(broker.bootstrap, CONFIG) as producer:
                await producer.send_and_wait("t", b"1")
                broker.on(
                    ProduceRequest,
                    lambda request, before: refusing(ErrorCode.UNKNOWN_PRODUCER_ID)(request, before - 1),
                )
                await producer.send_and_wait("t", b"2")
            identities = [(header.producer_id, header.base_sequence) for header in headers_of(broker)]
            assert identities == [(1001, 0), (1001, 1), (1002, 0)]

    asyncio.run(scenario())


def test_a_batch_given_up_in_doubt_costs_the_producer_id() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(ProduceRequest, lambda _request, before: HANG_UP if before == 0 else None)
            config = ProducerConfig(
                **{**QUICK, "retry_backoff_ms": 200, "retry_backoff_max_ms": 200}, delivery_timeout_ms=20
            )
            async with Producer(broker.bootstrap, config) as producer:
                with pytest.raises(TimedOut, match="t-0: not delivered within delivery_timeout_ms = 20"):
                    await producer.send_and_wait("t", b"1")
                broker.on(ProduceRequest, lambda _request, _before: None)
                patient = [await producer.send("t", b"2")]
                await asyncio.wait(patient)
            last = headers_of(broker)[-1]
            assert (last.producer_id, last.base_sequence) == (1002, 0)

    asyncio.run(scenario())


def test_a_refusal_reaches_each_record_with_its_own_reason() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            from tidelog.wire.messages.produce import BatchIndexAndErrorMessage

            def refuse(request: ProduceRequest, _before: int) -> Message:
                reply = refusing(ErrorCode.INVALID_RECORD, message="a record is bad")(request, 0)
                blamed = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
                reply.responses[0].partition_responses[0].record_errors = blamed
                return reply  # type: ignore[no-any-return]

            broker.on(ProduceRequest, refuse)
            config = ProducerConfig(**{**QUICK, "linger_ms": 60_000})
            async with Producer(broker.bootstrap, config) as producer:
                innocent, guilty = [await producer.send("t", b"v") for _ in range(2)]
                await producer.flush()
            assert str(innocent.exception()) == "t-0: a record is bad"
            assert str(guilty.exception()) == "no key"

    asyncio.run(scenario())


def test_without_acknowledgements_nothing_is_awaited() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            async with Producer(broker.bootstrap, ProducerConfig(**QUICK, acks=0)) as producer:
                assert (await producer.send_and_wait("t", b"v")).offset == -1
                await broker.something_stored()
            assert stored_values(broker) == [b"v"]
            assert not broker.requests(InitProducerIdRequest)
            assert headers_of(broker)[0].producer_id == -1

    asyncio.run(scenario())


def test_a_full_buffer_makes_senders_wait() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            held = asyncio.Event()

            def hold(_request: ProduceRequest, before: int) -> Misdeed | None:
                held.set()
                return SILENCE if before == 0 else None

            broker.on(ProduceRequest, hold)
            config = ProducerConfig(**QUICK, buffer_memory=2000, request_timeout_ms=100)
            async with Producer(broker.bootstrap, config) as producer:
                for _ in range(40):
                    await producer.send("t", b"x" * 200)
                    assert producer.buffered_bytes <= 2000
                assert held.is_set()
            assert len(stored_values(broker)) == 40

    asyncio.run(scenario())


def test_waiting_for_room_has_an_end() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(ProduceRequest, lambda _request, _before: SILENCE)
            config = ProducerConfig(**QUICK, buffer_memory=300, max_block_ms=30)
            producer = Producer(broker.bootstrap, config)
            await producer.start()
            stuck = await producer.send("t", b"x" * 200)
            with pytest.raises(TimedOut, match="buffer_memory = 300 is full"):
                await producer.send("t", b"x" * 200)
            await producer.close(flush=False)
            assert isinstance(stuck.exception(), Closed)

    asyncio.run(scenario())


def test_an_unknown_topic_is_waited_for_as_long_as_it_may_be_created() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            async with Producer(broker.bootstrap, ProducerConfig(**QUICK, max_block_ms=30)) as producer:
                with pytest.raises(TimedOut, match="looking up topic new"):
                    await producer.send("new", b"v")
            assert broker.requests(MetadataRequest)[-1].allow_auto_topic_creation

    asyncio.run(scenario())


def test_records_that_cannot_be_sent_are_refused_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}) as broker:
            async with Producer(broker.bootstrap, ProducerConfig(**QUICK, max_request_size=1000)) as producer:
                with pytest.raises(RecordTooLarge, match="max_request_size = 1000"):
                    await producer.send("t", b"x" * 1000)
                with pytest.raises(BrokerError, match="there is no partition 2, it has 2"):
                    await producer.send("t", b"v", partition=2)
            with pytest.raises(Closed):
                await producer.send("t", b"v")

    asyncio.run(scenario())


def test_keys_decide_partitions_and_keyless_records_stick() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 6}) as broker:
            async with Producer(broker.bootstrap, CONFIG) as producer:
                keyed = [await producer.send_and_wait("t", b"v", key=b"abc") for _ in range(3)]
                assert {stored.partition for stored in keyed} == {(479470107 & 0x7FFF_FFFF) % 6}
                assert (await producer.send_and_wait("t", b"v", partition=4)).partition == 4
            config = ProducerConfig(**{**QUICK, "linger_ms": 60_000})
            async with Producer(broker.bootstrap, config) as producer:
                sent = [await producer.send("t", b"v") for _ in range(50)]
                await producer.flush()
                assert len({(await delivery).partition for delivery in sent}) == 1

    asyncio.run(scenario())


def test_a_broker_without_producer_ids_is_explained() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            del broker.offered[InitProducerIdRequest.API]
            async with Producer(broker.bootstrap, CONFIG) as producer:
                with pytest.raises(NotSupported, match="enable_idempotence=False"):
                    await producer.send_and_wait("t", b"v")

    asyncio.run(scenario())


@pytest.mark.parametrize("versions", [(3, 3), (3, 8), (3, 12), (13, 13)])
def test_every_produce_version_works(versions: tuple[int, int]) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.offered[ProduceRequest.API] = versions
            async with Producer(broker.bootstrap, CONFIG) as producer:
                assert (await producer.send_and_wait("t", b"v")).offset == 0
            assert broker.versions[ProduceRequest] == [versions[1]]

    asyncio.run(scenario())


def test_a_topic_without_an_id_is_named_instead() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.offered[MetadataRequest.API] = (0, 9)
            async with Producer(broker.bootstrap, CONFIG) as producer:
                assert (await producer.send_and_wait("t", b"v")).offset == 0
            assert broker.versions[ProduceRequest] == [12]

    asyncio.run(scenario())


def test_cancelling_leaves_neither_task_nor_socket() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            reached = asyncio.Event()

            def hold(_request: ProduceRequest, _before: int) -> Misdeed:
                reached.set()
                return SILENCE

            broker.on(ProduceRequest, hold)

            async def work() -> None:
                async with Producer(broker.bootstrap, CONFIG) as producer:
                    await producer.send_and_wait("t", b"v")

            task = asyncio.create_task(work())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await broker.all_gone()
            ours = [each for each in asyncio.all_tasks() if each.get_name().startswith("tidelog")]
            assert ours == []

    asyncio.run(scenario())


def test_nobody_there_is_said_at_the_start() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            address = broker.bootstrap
        with pytest.raises(BrokersUnreachable):
            async with Producer(address, CONFIG):
                pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"acks": 2}, "acks is all, 0 or 1"),
        ({"acks": 1, "enable_idempotence": True}, "needs acks=all"),
        ({"compression_type": "brotli"}, "compression_type is one of none, gzip"),
        ({"batch_size": 0}, "batch_size must be positive"),
    ],
)
def test_bad_settings_are_explained(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ProducerConfig(**settings)


def test_a_producer_outlives_a_time_without_producer_ids() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(InitProducerIdRequest, lambda _request, before: HANG_UP if before < 3 else None)
            config = ProducerConfig(**QUICK, delivery_timeout_ms=60_000)
            async with Producer(broker.bootstrap, config) as producer:
                assert (await producer.send_and_wait("t", b"v")).offset == 0
            assert len(broker.requests(InitProducerIdRequest)) == 4

    asyncio.run(scenario())


def test_records_expire_while_there_is_no_producer_id() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(InitProducerIdRequest, lambda _request, _before: HANG_UP)
            async with Producer(broker.bootstrap, ProducerConfig(**QUICK, delivery_timeout_ms=30)) as producer:
                with pytest.raises(TimedOut, match="t-0: not delivered within delivery_timeout_ms = 30"):
                    await producer.send_and_wait("t", b"v")

    asyncio.run(scenario())
