"""What another implementation's reader of committed records finds, once the outcomes are written everywhere."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidelog.testing import eventually

WITHIN_S = 60.0
"""For hanging, not for slowness."""


def committed_values(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """Partition by partition. Fails if a transaction stays open in one."""
    reader, everything = (_consumer(bootstrap, level) for level in ("read_committed", "read_uncommitted"))
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    try:
        for place in [TopicPartition(topic, number) for number in found]:
            eventually(lambda p=place: _end(reader, p) == _end(everything, p), f"{place}'s outcomes", within_s=WITHIN_S)  # type: ignore[misc]
        reader.assign([TopicPartition(topic, number, 0) for number in found])
        at_end: set[int] = set()
        while len(at_end) < partitions:
            message = reader.poll(WITHIN_S)
            assert message is not None, "nothing came, not even the end of a partition"
            partition, value, error = message.partition(), message.value(), message.error()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(partition)
            elif isinstance(value, bytes):
                found[partition].append(value)
    finally:
        reader.close()
        everything.close()
    return [value for number in sorted(found) for value in found[number]]


def _consumer(bootstrap: str, level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """As the leader tells it now; a reader of committed records sees an end before the first open transaction."""
    offsets = consumer.get_watermark_offsets(place, timeout=WITHIN_S)
    assert offsets is not None
    return offsets[1]
