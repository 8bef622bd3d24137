"""What idempotent producers were promised while brokers failed under them, and the judgement of what came of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


@dataclass
class Ledger:
    """What one producer sent and what of it was acknowledged, per partition and by sequence number."""

    name: int
    filling_max: int = 300
    """Records are filled up to different lengths, all shorter than this."""
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    failed: list[str] = field(default_factory=list)
    acks: int = 0

    def value(self, partition: int) -> bytes:
        sequence = self.sent[partition]
        self.sent[partition] = sequence + 1
        return b"%d:%d:" % (self.name, sequence) + b"." * (sequence % self.filling_max)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledge(partition, int(value.split(b":")[1]), offset)

    def waiting(self) -> dict[int, int]:
        """How many records of each partition nobody has answered yet."""
        return {partition: sent - len(self.acknowledged[partition]) for partition, sent in self.sent.items()}

    def acknowledge(self, partition: int, sequence: int, offset: int) -> None:
        self.acknowledged[partition][sequence] = offset
        self.acks += 1


def check_partition(stored: list[bytes | None], ledgers: list[Ledger], partition: int) -> None:
    """Acknowledged records are where their acknowledgement said, none is there twice, each producer's are in order."""
    by_producer: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for offset, value in enumerate(stored):
        assert value is not None
        producer, sequence, _filling = value.split(b":", 2)
        by_producer[int(producer)].append((int(sequence), offset))
    for ledger in ledgers:
        where = f"partition {partition}, producer {ledger.name}"
        places = by_producer[ledger.name]
        sequences = [sequence for sequence, _offset in places]
        assert len(set(sequences)) == len(sequences), f"{where}: {_repeated(places)}"
        assert sequences == sorted(sequences), f"{where}: records are out of order"
        found = dict(places)
        acknowledged = ledger.acknowledged[partition]
        lost = {sequence: offset for sequence, offset in acknowledged.items() if sequence not in found}
        assert not lost, (
            f"{where}: {len(lost)} of {len(acknowledged)} acknowledged records are lost, "
            f"from offset {min(lost.values())} to {max(lost.values())} of {len(stored)}"
        )
        moved = [sequence for sequence, offset in acknowledged.items() if found[sequence] != offset]
        assert not moved, f"{where}: {len(moved)} records are not at the offset acknowledged"


def _repeated(places: list[tuple[int, int]]) -> str:
    offsets: dict[int, list[int]] = defaultdict(list)
    for sequence, offset in places:
        offsets[sequence].append(offset)
    twice = {sequence: found for sequence, found in offsets.items() if len(found) > 1}
    return f"{len(twice)} records are stored more than once, such as {next(iter(twice.items()))}"
