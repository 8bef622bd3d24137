"""What processes tell each other to have a part in one transaction. Plain values: pickle them, or send them as JSON.

TransactionHandle     to a writer: whose transaction it is, and which partitions the writer has for itself
TransactionPart       back from a writer: everything it wrote is stored, and where its partitions stand
PreparedTransaction   from whoever wrote to whoever decides: everything is stored, only the outcome is missing
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.accumulator import ProducerIdentity
from tidelog.types import ProducerId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

Sequences = tuple[tuple[TopicPartition, int], ...]
"""Partitions, each with the number of the next record that is written to it under the producer's identity."""


class TransactionHandle(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    """Of Kafka's feature of that name: from 2 on, partitions join a transaction when they are written to."""
    partitions: Sequences
    """The writer's own. Nobody else writes to them in this transaction."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(ProducerId(self.producer_id), self.epoch)

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "partitions": _listed(self.partitions)})

    @classmethod
    def from_json(cls, text: str) -> TransactionHandle:
        """ValueError or TypeError when it is not what `to_json` gave."""
        return cls(**_read(cls.__name__, text))


class TransactionPart(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    written: bool
    """Whether there is anything of it in the transaction."""
    partitions: Sequences

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(ProducerId(self.producer_id), self.epoch)

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "partitions": _listed(self.partitions)})

    @classmethod
    def from_json(cls, text: str) -> TransactionPart:
        """ValueError or TypeError when it is not what `to_json` gave."""
        return cls(**_read(cls.__name__, text))


class PreparedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    written: bool = True
    """An empty transaction needs no outcome."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(ProducerId(self.producer_id), self.epoch)

    def to_json(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> PreparedTransaction:
        """ValueError or TypeError when it is not what `to_json` gave."""
        return cls(**_read(cls.__name__, text))


def sequences(next_sequences: Mapping[TopicPartition, int]) -> Sequences:
    return tuple(sorted(next_sequences.items()))


def _listed(partitions: Sequences) -> list[tuple[str, int, int]]:
    return [(topic, partition, sequence) for (topic, partition), sequence in partitions]


def _read(kind: str, text: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(text)
        if "partitions" in fields:
            fields["partitions"] = tuple(
                (TopicPartition(str(topic), int(partition)), int(sequence))
                for topic, partition, sequence in fields["partitions"]
            )
    except (TypeError, ValueError) as error:
        raise ValueError(f"this is no {kind}: {error}") from error
    return fields
