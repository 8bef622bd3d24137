"""Two consumers of one group share a topic, and commit what they have dealt with.

Needs a broker: `tidelog broker`, then `python consumer_group.py localhost:9092`.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from tidelog.client import Admin, Consumer, Producer

RECORDS = 1000


async def deal_with(bootstrap: str, group: str, topic: str, done: set[tuple[int, int]]) -> None:
    """Reads until all is done, by this consumer or by the other one."""
    async with Consumer(
        bootstrap, group_id=group, topics=[topic], auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        while len(done) < RECORDS:
            records = await consumer.poll(timeout_s=0.2)
            done.update((record.partition, record.offset) for record in records)
            await consumer.commit()


async def main(bootstrap: str) -> None:
    topic = f"example.group.{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=4)
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, f"record {number}".encode(), key=b"%d" % number)
    done: set[tuple[int, int]] = set()
    await asyncio.gather(*(deal_with(bootstrap, f"group of {topic}", topic, done) for _ in range(2)))
    print(f"consumed {len(done)} records")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
