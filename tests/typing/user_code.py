"""An application that uses all of the clients, as its author would write it; never run, but checked by mypy --strict.

`assert_type` says what a type checker has to know of what it is given.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, assert_type

from tidelog.client import (
    Acl,
    AclFilter,
    AclOperation,
    Admin,
    BatchDelivery,
    BrokerError,
    ClientError,
    ClientMetrics,
    ConfigResource,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    GroupDescription,
    MemberToRemove,
    NewScramCredential,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    PreparedTransaction,
    Producer,
    ProducerConfig,
    QuotaEntity,
    RebalanceListener,
    RecordMetadata,
    ResourceType,
    TopicPartition,
    TransactionHandle,
    TransactionPart,
    blocking,
)
from tidelog.client.serializers import from_json, from_text, to_json, to_text
from tidelog.types import Offset

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]

AT = "localhost:9092"
ORDERS = TopicPartition("orders", 0)


class Shop(RebalanceListener):
    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(len(partitions))

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        del partitions


def amount(data: bytes) -> int:
    return int(data)


async def produce(table: Table) -> None:
    async with Producer(AT, linger_ms=5, acks="all", compression_type="lz4", partitioner="random") as producer:
        assert_type(producer, Producer[bytes, bytes])
        delivery = await producer.send("orders", b"v", key=b"k", headers=[("h", None)], timestamp_ms=1, partition=0)
        assert_type(await delivery, RecordMetadata)
        assert_type((await producer.send_and_wait("orders", None)).offset, Offset)
        assert_type(await (await producer.send_batch("orders", table)), BatchDelivery)
        await producer.flush()
        assert_type(producer.buffered_bytes, int)
        assert_type(await producer.partitions_for("orders"), int)
    texts = Producer(ProducerConfig.from_kafka({"bootstrap.servers": AT}), key_serializer=to_text)
    assert_type(texts, Producer[str, bytes])
    await texts.start()
    await texts.send("orders", b"v", key="text")
    await texts.close(flush=False)
    async with Producer(AT, value_serializer=to_json) as documents:
        await documents.send("orders", {"amount": 1})


async def transact(consumer: Consumer) -> None:
    async with Producer(AT, transactional_id="shop", keep_prepared=True) as producer:
        async with producer.transaction():
            await producer.send_offsets(consumer.positions(), consumer.group_metadata())
        await producer.begin()
        handle = await producer.transaction_handle([ORDERS])
        assert_type(handle, TransactionHandle)
        async with Producer[bytes, bytes].join_transaction(AT, handle) as writer:
            part = await writer.leave()
        assert_type(part, TransactionPart)
        producer.include(part)
        assert_type(await producer.prepare(), PreparedTransaction)
        assert_type(await producer.complete(producer.prepared), bool)
        await producer.renew()
        await producer.begin()
        try:
            await producer.commit()
        except ClientError:
            await producer.abort()


async def consume() -> None:
    async with Consumer(AT, group_id="g", topics=["orders"], listener=Shop(), value_deserializer=amount) as consumer:
        assert_type(consumer, Consumer[bytes, int])
        async for record in consumer:
            assert_type(record, ConsumerRecord[bytes, int])
            assert_type(record.key, bytes | None)
            assert_type(record.value, int | None)
            break
        assert_type(await consumer.poll(1.0, max_records=5), list[ConsumerRecord[bytes, int]])
        assert_type(await consumer.poll_by_partition(1.0), dict[TopicPartition, list[ConsumerRecord[bytes, int]]])
        await consumer.commit()
        await consumer.commit({ORDERS: 7})
        await consumer.commit_soon()
        assert_type(await consumer.committed(), dict[TopicPartition, OffsetAndMetadata | None])
        await consumer.subscribe(pattern="orders.*", listener=Shop())
        assert_type(consumer.subscription, frozenset[str])
        await consumer.unsubscribe()
    texts = Consumer(ConsumerConfig.from_kafka({"bootstrap.servers": AT}), value_deserializer=from_text)
    assert_type(texts, Consumer[bytes, str])
    await texts.start()
    await texts.close(timeout_s=1)
    async with Consumer(AT, value_deserializer=from_json) as documents:
        await documents.poll()


async def go_where_told() -> None:
    async with Consumer(AT, isolation_level="read_committed") as consumer:
        await consumer.assign({ORDERS: 7, TopicPartition("orders", 1): OffsetSpec.latest()})
        await consumer.assign_topics(["orders"], OffsetSpec.earliest())
        assert_type(consumer.assignment, frozenset[TopicPartition])
        await consumer.seek(ORDERS, OffsetSpec.at_timestamp(1))
        await consumer.seek_to_beginning()
        await consumer.seek_to_end(ORDERS)
        await consumer.seek_to_timestamp(1)
        consumer.pause(ORDERS)
        assert_type(consumer.paused, frozenset[TopicPartition])
        consumer.resume(ORDERS)
        assert_type(consumer.position(ORDERS), Offset)
        assert_type(consumer.high_watermark(ORDERS), Offset | None)
        assert_type(await consumer.beginning_offsets([ORDERS]), dict[TopicPartition, Offset])
        assert_type(await consumer.end_offsets([ORDERS]), dict[TopicPartition, Offset])
        assert_type(await consumer.offsets_for_times({ORDERS: 1}), dict[TopicPartition, Offset | None])
        (await consumer.poll_batch(1.0, headers=False)).to_pylist()
        async for batch in consumer.batches():
            batch.to_pylist()


async def look_after_topics(admin: Admin) -> None:
    assert_type((await admin.create_topic("orders", partitions=3, configs={"retention.ms": "1"})).partitions, int)
    for name, created in (await admin.create_topics([NewTopic("orders")])).items():
        print(name, created.code if isinstance(created, BrokerError) else created.topic_id)  # noqa: T201
    assert_type((await admin.describe_topic("orders")).topic_partitions, list[TopicPartition])
    await admin.describe_topics(["orders"])
    await admin.list_topics(include_internal=True)
    await admin.add_partitions("orders", 6)
    await admin.describe_configs(ConfigResource.of_topic("orders"))
    await admin.alter_configs(ConfigResource.of_topic("orders"), set={"retention.ms": "1"}, delete=["segment.ms"])
    await admin.replace_configs(ConfigResource.of_topic("orders"), {})
    found = (await admin.list_offsets({ORDERS: OffsetSpec.latest()}))[ORDERS]
    assert_type(found.offset if found is not None else None, Offset | None)
    await admin.delete_records({ORDERS: 5})
    await admin.delete_topic("orders")
    await admin.delete_topics(["orders"])


async def look_after_groups_and_access(admin: Admin) -> None:
    await admin.list_groups(types=["consumer"])
    assert_type(await admin.describe_group("g"), GroupDescription)
    await admin.describe_groups(["g"])
    assert_type(await admin.list_group_offsets("g"), dict[TopicPartition, OffsetAndMetadata])
    await admin.alter_group_offsets("g", {ORDERS: 3})
    await admin.delete_group_offsets("g", [ORDERS])
    await admin.remove_members("g", [MemberToRemove(instance_id="a")])
    await admin.delete_group("g")
    await admin.delete_groups(["g"])
    acl = Acl(ResourceType.TOPIC, "orders", "User:alice", operation=AclOperation.READ)
    await admin.create_acls([acl])
    assert_type(await admin.describe_acls(), list[Acl])
    await admin.delete_acls([AclFilter.exactly(acl)])
    await admin.alter_scram_credentials(set=[NewScramCredential("alice", "secret")])
    await admin.describe_scram_credentials(["alice"])
    await admin.alter_client_quotas({QuotaEntity(user="alice"): {"producer_byte_rate": 1e6}})
    assert_type(await admin.describe_client_quotas(), dict[QuotaEntity, dict[str, float]])


async def look_after_the_cluster(admin: Admin) -> None:
    await admin.describe_cluster()
    await admin.describe_features()
    for log_dir in await admin.describe_log_dirs():
        await admin.move_to_log_dir(log_dir.broker, log_dir.path, [ORDERS])
    await admin.alter_reassignments({ORDERS: [1, 2, 3]})
    await admin.list_reassignments()
    async for progress in admin.follow_reassignments():
        assert_type(progress.done, int)
    await admin.cancel_reassignments()
    await admin.elect_leaders([ORDERS], kind="preferred")
    await admin.unregister_broker(4)
    await admin.list_transactions()
    await admin.describe_transaction("shop")
    await admin.describe_transactions(["shop"])
    await admin.find_hanging_transactions([ORDERS], older_than_ms=1)
    for producer in await admin.describe_producers(ORDERS):
        await admin.abort_transaction(ORDERS, producer)
    assert_type(admin.metrics(), ClientMetrics)


def without_await() -> None:
    with blocking.Producer(AT, key_serializer=to_text) as producer:
        assert_type(producer, blocking.Producer[str, bytes])
        assert_type(producer.send("orders", b"v", key="k"), Future[RecordMetadata])
    with blocking.Consumer(AT, group_id="g", topics=["orders"], value_deserializer=amount) as consumer:
        for record in consumer:
            assert_type(record, ConsumerRecord[bytes, int])
            consumer.commit()
    with blocking.Admin(AT) as admin:
        admin.create_topic("orders", partitions=3)
