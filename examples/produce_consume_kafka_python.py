"""The same with kafka-python, a client in pure Python: nothing about it is special to Tidelog.

pip install kafka-python
tidelog broker &
python examples/produce_consume_kafka_python.py [host:port]
"""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[import-untyped]

TOPIC = "example.temperatures.kafka-python"
PARTITIONS = 3
COUNT = 1000


def create_topic(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    if TOPIC not in admin.list_topics():
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    admin.close()


def main(bootstrap: str) -> None:
    create_topic(bootstrap)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    consumer.seek_to_end()
    for partition in consumer.assignment():
        consumer.position(partition)  # asks for the end now, and not at the first poll

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    for number in range(COUNT):
        sensor = f"s{number % 7}"
        reading = {"sensor": sensor, "celsius": 20 + number % 13 / 10}
        producer.send(TOPIC, json.dumps(reading).encode(), key=sensor.encode())
    producer.close()
    print(f"produced {COUNT} records")

    seen = 0
    for record in consumer:
        seen += 1
        if seen <= 3:
            print(f"partition {record.partition} offset {record.offset}: {record.value!r}")
        if seen == COUNT:
            break
    consumer.close()
    print(f"consumed {seen} records")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
