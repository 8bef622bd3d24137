"""One Python client doing one thing, in a process of its own: run with the way's name, an address, a topic and amounts.

Every way produces to a topic without keys, or reads its only partition from the start, and prints as JSON how many
records it moved, in how many seconds and with how much processor time. Libraries keep their defaults, but for
acknowledgement by all replicas, time and room for batches, lists of up to 10,000 records, and more room for what
confluent-kafka has fetched. Producers send one record more than counts, before the clock starts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.client import Consumer, OffsetSpec, Producer

if TYPE_CHECKING:
    from collections.abc import Callable

LINGER_MS = 5
BATCH_BYTES = 128 << 10
AT_ONCE = 10_000
TABLE_ROWS = 50_000
PATIENCE_S = 60.0


class Clock:
    """Runs from the first record to the last; connecting and importing do not count."""

    def start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu


class Job:
    def __init__(self, bootstrap: str, topic: str, record_bytes: int, count: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.count = count
        self.value = bytes(record_bytes)
        self.clock = Clock()


async def tidelog_produce(job: Job) -> None:
    async with Producer(job.bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        await producer.send_and_wait(job.topic, job.value)
        job.clock.start()
        for _ in range(job.count):
            await producer.send(job.topic, job.value)
        await producer.flush()
        job.clock.stop()


async def tidelog_produce_arrow(job: Job) -> None:
    pa: Any = import_module("pyarrow")
    async with Producer(job.bootstrap, linger_ms=LINGER_MS) as producer:
        await producer.send_and_wait(job.topic, job.value)
        table = pa.table({"value": pa.array([job.value] * min(TABLE_ROWS, job.count), pa.binary())})
        job.clock.start()
        left = job.count
        while left:
            part = table.slice(0, left)
            await producer.send_batch(job.topic, part)
            left -= part.num_rows
        await producer.flush()
        job.clock.stop()


async def tidelog_poll(job: Job) -> None:
    async with Consumer(job.bootstrap, max_poll_records=AT_ONCE) as consumer:
        await consumer.assign_topics([job.topic], OffsetSpec.earliest())
        job.clock.start()
        left = job.count
        while left > 0:
            left -= len(await consumer.poll())
        job.clock.stop()


async def tidelog_iterate(job: Job) -> None:
    async with Consumer(job.bootstrap) as consumer:
        await consumer.assign_topics([job.topic], OffsetSpec.earliest())
        job.clock.start()
        left = job.count
        async for _ in consumer:
            left -= 1
            if not left:
                break
        job.clock.stop()


async def tidelog_arrow(job: Job) -> None:
    import_module("pyarrow")
    async with Consumer(job.bootstrap) as consumer:
        await consumer.assign_topics([job.topic], OffsetSpec.earliest())
        job.clock.start()
        left = job.count
        async for rows in consumer.batches():
            left -= rows.num_rows
            if left <= 0:
                break
        job.clock.stop()


def kafka_python_produce(job: Job) -> None:
    kafka: Any = import_module("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=job.bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    )
    producer.send(job.topic, job.value).get(PATIENCE_S)
    job.clock.start()
    for _ in range(job.count):
        producer.send(job.topic, job.value)
    producer.flush()
    job.clock.stop()
    producer.close()


def kafka_python_poll(job: Job) -> None:
    kafka: Any = import_module("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=job.bootstrap, group_id=None, enable_auto_commit=False)
    partition = kafka.TopicPartition(job.topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    job.clock.start()
    left = job.count
    while left > 0:
        left -= sum(len(found) for found in consumer.poll(1000, max_records=AT_ONCE).values())
    job.clock.stop()
    consumer.close()


async def aiokafka_produce(job: Job) -> None:
    aiokafka: Any = import_module("aiokafka")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    )
    await producer.start()
    await producer.send_and_wait(job.topic, job.value)
    job.clock.start()
    for _ in range(job.count):
        await producer.send(job.topic, job.value)
    await producer.flush()
    job.clock.stop()
    await producer.stop()


async def aiokafka_getmany(job: Job) -> None:
    aiokafka: Any = import_module("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=job.bootstrap, group_id=None, enable_auto_commit=False)
    await consumer.start()
    partition = aiokafka.TopicPartition(job.topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    job.clock.start()
    left = job.count
    while left > 0:
        found = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
        left -= sum(len(records) for records in found.values())
    job.clock.stop()
    await consumer.stop()


def confluent_produce(job: Job) -> None:
    producer = _confluent_producer(job)
    job.clock.start()
    for _ in range(job.count):
        while True:
            try:
                producer.produce(job.topic, job.value)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    job.clock.stop()


def confluent_produce_batch(job: Job) -> None:
    producer = _confluent_producer(job)
    messages = [{"value": job.value}] * AT_ONCE
    job.clock.start()
    left = job.count
    while left:
        queued = producer.produce_batch(job.topic, messages[:left])
        left -= queued
        producer.poll(0 if queued else 0.01)
    producer.flush(PATIENCE_S)
    job.clock.stop()


def _confluent_producer(job: Job) -> Any:
    library: Any = import_module("confluent_kafka")
    producer = library.Producer(
        {"bootstrap.servers": job.bootstrap, "acks": "all", "queue.buffering.max.messages": 1_000_000}
    )
    producer.produce(job.topic, job.value)
    producer.flush(PATIENCE_S)
    return producer


def confluent_consume(job: Job, each: Callable[[list[Any]], object] = len) -> None:
    library: Any = import_module("confluent_kafka")
    consumer = library.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 256 << 10,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.get_watermark_offsets(library.TopicPartition(job.topic, 0), timeout=PATIENCE_S)
    job.clock.start()
    consumer.assign([library.TopicPartition(job.topic, 0, 0)])
    left = job.count
    while left > 0:
        messages = consumer.consume(min(left, AT_ONCE), timeout=PATIENCE_S)
        each(messages)
        left -= len(messages)
    job.clock.stop()
    consumer.close()


def confluent_arrow(job: Job) -> None:
    """The same columns, as far as they can be had."""
    pa: Any = import_module("pyarrow")

    def columns(messages: list[Any]) -> Any:
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.array([message.key() for message in messages], pa.binary()),
                "value": pa.array([message.value() for message in messages], pa.binary()),
                "topic": pa.array([message.topic() for message in messages], pa.string()),
                "partition": pa.array([message.partition() for message in messages], pa.int32()),
                "offset": pa.array([message.offset() for message in messages], pa.int64()),
                "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", tz="UTC")),
            }
        )

    confluent_consume(job, columns)


WAYS: dict[str, Callable[[Job], Any]] = {
    way.__name__: way
    for way in (
        tidelog_produce,
        tidelog_produce_arrow,
        tidelog_poll,
        tidelog_iterate,
        tidelog_arrow,
        kafka_python_produce,
        kafka_python_poll,
        aiokafka_produce,
        aiokafka_getmany,
        confluent_produce,
        confluent_produce_batch,
        confluent_consume,
        confluent_arrow,
    )
}


def main(way: str, bootstrap: str, topic: str, record_bytes: str, count: str) -> None:
    job = Job(bootstrap, topic, int(record_bytes), int(count))
    running = WAYS[way](job)
    if running is not None:
        asyncio.run(running)
    print(json.dumps({"records": job.count, "seconds": job.clock.wall_s, "cpu_s": job.clock.cpu_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
