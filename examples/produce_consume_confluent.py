"""The same with confluent-kafka, the Python client on librdkafka: nothing about it is special to Tidelog.

pip install confluent-kafka
tidelog broker &
python examples/produce_consume_confluent.py [host:port]
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

TOPIC = "example.temperatures.confluent"
PARTITIONS = 3
COUNT = 1000


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if TOPIC not in admin.list_topics(timeout=10).topics:
        for created in admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)]).values():
            created.result()


def main(bootstrap: str) -> None:
    create_topic(bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "example", "enable.auto.commit": False})
    # Partitions are assigned by hand, from their ends as they are now.
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition, timeout=10)[1]
    consumer.assign(partitions)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for number in range(COUNT):
        sensor = f"s{number % 7}"
        reading = {"sensor": sensor, "celsius": 20 + number % 13 / 10}
        producer.produce(TOPIC, json.dumps(reading).encode(), key=sensor.encode())
    producer.flush()
    print(f"produced {COUNT} records")

    seen = 0
    while seen < COUNT:
        for message in consumer.consume(num_messages=500, timeout=1.0):
            if message.error():
                raise KafkaException(message.error())
            seen += 1
            if seen <= 3:
                print(f"partition {message.partition()} offset {message.offset()}: {message.value()!r}")
    consumer.close()
    print(f"consumed {seen} records")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
