"""Produce and consume with Tidelog's own asyncio client.

tidelog broker &
python examples/produce_consume.py [host:port]
"""

import asyncio
import json
import sys

from tidelog.client import Admin, Consumer, OffsetSpec, Producer, ProducerConfig

TOPIC = "example.temperatures"
COUNT = 1000


async def main(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        if TOPIC not in [topic.name for topic in await admin.list_topics()]:
            await admin.create_topic(TOPIC, partitions=3)

    async with Consumer(bootstrap) as consumer:
        # From now on: what earlier runs left behind is not read again.
        await consumer.assign_topics([TOPIC], OffsetSpec.latest())

        async with Producer(bootstrap, ProducerConfig(compression_type="zstd")) as producer:
            for number in range(COUNT):
                sensor = f"s{number % 7}"
                reading = {"sensor": sensor, "celsius": 20 + number % 13 / 10}
                # Readings of the same sensor go to the same partition, and stay in order there.
                await producer.send(TOPIC, json.dumps(reading).encode(), key=sensor.encode())
        print(f"produced {COUNT} records")

        seen = 0
        async for record in consumer:
            seen += 1
            if seen <= 3:
                print(f"partition {record.partition} offset {record.offset}: {record.value!r}")
            if seen == COUNT:
                break
        print(f"consumed {seen} records")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
