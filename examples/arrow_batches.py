"""Send a pyarrow table and read record batches, with the columns of Spark's Kafka source and sink.

pip install 'tidelog[arrow]'
tidelog broker &
python examples/arrow_batches.py [host:port]
"""

import asyncio
import sys

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from tidelog.client import Admin, Consumer, OffsetSpec, Producer

TOPIC = "example.clicks"
COUNT = 1000


async def main(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        if TOPIC not in [topic.name for topic in await admin.list_topics()]:
            await admin.create_topic(TOPIC, partitions=3)

    async with Consumer(bootstrap) as consumer:
        # From now on: what earlier runs left behind is not read again.
        await consumer.assign_topics([TOPIC], OffsetSpec.latest())

        clicks = pa.table(
            {
                "key": [f"user {number % 17}" for number in range(COUNT)],
                "value": [f"page {number % 5}" for number in range(COUNT)],
            }
        )
        async with Producer(bootstrap, compression_type="lz4") as producer:
            # One future for the whole table.
            stored = await (await producer.send_batch(TOPIC, clicks))
        print(f"produced {stored.rows} records")

        seen = 0
        async for batch in consumer.batches():
            seen += batch.num_rows
            pages = pc.value_counts(batch["value"].cast(pa.string()))
            print({page["values"]: page["counts"] for page in pages.to_pylist()})
            if seen == COUNT:
                break
        print(f"consumed {seen} records")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
