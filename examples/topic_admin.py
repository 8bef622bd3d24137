"""Look after topics: create, describe, change, grow, look up offsets, delete.

tidelog broker &
python examples/topic_admin.py [host:port]
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from tidelog.client import Admin, BrokerError, ConfigResource, ErrorCode, OffsetSpec, Producer, TopicPartition

TOPIC = "example.admin"


async def main(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        print(f"cluster {cluster.cluster_id} has {len(cluster.brokers)} broker(s)")

        try:
            await admin.create_topic(TOPIC, partitions=2, configs={"retention.ms": "3600000"})
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

        settings = ConfigResource.of_topic(TOPIC)
        await admin.alter_configs(settings, set={"retention.ms": "7200000"})
        (retention,) = await admin.describe_configs(settings, ["retention.ms"])
        print(f"{retention.name} is {retention.value} (from {retention.source.name})")

        described = await admin.describe_topic(TOPIC)
        await admin.add_partitions(TOPIC, len(described.partitions) + 1)
        for partition in (await admin.describe_topic(TOPIC)).partitions:
            print(f"partition {partition.index} is led by broker {partition.leader}")

        async with Producer(bootstrap) as producer:
            for number in range(10):
                await producer.send(TOPIC, b"record %d" % number, partition=0)

        first = TopicPartition(TOPIC, 0)
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        for name, spec in {
            "start": OffsetSpec.earliest(),
            "end": OffsetSpec.latest(),
            "an hour ago": OffsetSpec.at_timestamp(int(hour_ago.timestamp() * 1000)),
        }.items():
            found = (await admin.list_offsets({first: spec}))[first]
            print(f"{name}: {found.offset if found is not None else 'nothing that late'}")

        await admin.delete_records({first: 5})
        print("the first five records are gone")
        await admin.delete_topic(TOPIC)
        print(f"{TOPIC} is gone")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
