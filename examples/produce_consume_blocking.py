"""Produce and consume with Tidelog's own client, without asyncio.

tidelog broker &
python examples/produce_consume_blocking.py [host:port]
"""

import sys
from itertools import islice
from typing import Any

from tidelog.client import OffsetSpec
from tidelog.client.blocking import Admin, Consumer, Producer
from tidelog.client.serializers import from_json, from_text, to_json, to_text

TOPIC = "example.readings"
COUNT = 1000


def main(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        if TOPIC not in [topic.name for topic in admin.list_topics()]:
            admin.create_topic(TOPIC, partitions=3)

    consumer: Consumer[str, Any] = Consumer(bootstrap, key_deserializer=from_text, value_deserializer=from_json)
    with consumer:
        # From now on: what earlier runs left behind is not read again.
        consumer.assign_topics([TOPIC], OffsetSpec.latest())
        with Producer(bootstrap, key_serializer=to_text, value_serializer=to_json) as producer:
            for number in range(COUNT):
                producer.send(TOPIC, {"celsius": 20 + number % 13 / 10}, key=f"s{number % 7}")
        print(f"produced {COUNT} records")

        readings = [record.value for record in islice(consumer, COUNT) if record.value is not None]
        print(f"up to {max(reading['celsius'] for reading in readings)} degrees")
        print(f"consumed {len(readings)} records")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
