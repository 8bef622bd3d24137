"""Copy records from one topic to another exactly once, although the copying fails now and then.

tidelog broker &
python examples/exactly_once.py [host:port]
"""

import asyncio
import sys

from tidelog.client import Admin, Consumer, OffsetSpec, Producer

ORDERS, RECEIPTS = "example.orders", "example.receipts"
COUNT = 1000


class PowerCutError(Exception):
    pass


async def copy_some(consumer: Consumer, producer: Producer, *, fail: bool) -> int:
    """One transaction: what was read, and what was written for it, count together or not at all."""
    records = await consumer.poll(timeout_s=1, max_records=100)
    async with producer.transaction():
        for record in records:
            await producer.send(RECEIPTS, b"receipt for " + (record.value or b""), key=record.key)
        await producer.send_offsets(consumer.positions(), consumer.group_metadata())
        if fail and records:
            raise PowerCutError
    return len(records)


async def copy_all(bootstrap: str) -> None:
    copied, attempts = 0, 0
    while copied < COUNT:
        # After a failure both begin anew: the consumer at the last commit, the producer in a transaction of its own.
        async with (
            Consumer(
                bootstrap,
                group_id="example.copy",
                topics=[ORDERS],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
            Producer(bootstrap, transactional_id="example.copy-0") as producer,
        ):
            try:
                while copied < COUNT:
                    attempts += 1
                    copied += await copy_some(consumer, producer, fail=attempts == 4)
            except PowerCutError:
                print(f"the power went after {copied} records")


async def main(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        there = {topic.name for topic in await admin.list_topics()}
        for topic in {ORDERS, RECEIPTS} - there:
            await admin.create_topic(topic, partitions=3)

    async with Consumer(bootstrap, isolation_level="read_committed") as reader:
        await reader.assign_topics([RECEIPTS], OffsetSpec.latest())
        async with Producer(bootstrap) as producer:
            for number in range(COUNT):
                await producer.send(ORDERS, b"order %d" % number, key=b"customer %d" % (number % 17))
        await copy_all(bootstrap)
        receipts: list[bytes | None] = []
        while len(receipts) < COUNT:
            receipts += [record.value for record in await reader.poll()]
        assert len(set(receipts)) == COUNT, "something is there twice"
        print(f"consumed {len(receipts)} records")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
