"""What a stream leaves in Spark's checkpoint: its positions, as Spark's Kafka source writes them, and whose they are.

    {"orders": {"0": 12, "1": 7}, "@topicIds": {"orders": "3kM0vQlJTmCdyxfKmBpLAg"}}

The identity of topics tells of one that was deleted and created anew while the query was down. Without it, which is how
Spark's own source leaves its checkpoints, that can only be told when the topic has become shorter.

Spark's checkpoint tells where each batch ends, and the next begins. Where the first one begins it asks the source, and
once more when it repeats that batch after a restart: so the end of the first batch has it, too, as "@began". Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipelines.source.errors import ForeignCheckpoint
from tidelog.pipelines.source.positions import to_document
from tidelog.types import ZERO_TOPIC_ID, TopicId, TopicPartition, format_topic_id, parse_topic_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipelines.source.positions import Positions

TOPIC_IDS: Final = "@topicIds"
BEGAN: Final = "@began"
"""No topic can have such names."""


@dataclass(frozen=True, slots=True)
class Mark:
    positions: Positions
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    """Of those topics whose identity was known."""
    began: Positions | None = None
    """Where the stream began, if nothing or only its first batch comes before this."""

    @classmethod
    def of(
        cls, positions: Positions, partitions: Mapping[TopicPartition, TopicId], began: Positions | None = None
    ) -> Mark:
        found = {at.topic: partitions.get(at, ZERO_TOPIC_ID) for at in positions}
        return cls(positions, {topic: each for topic, each in found.items() if each != ZERO_TOPIC_ID}, began)

    @property
    def is_the_beginning(self) -> bool:
        return self.began == self.positions

    @property
    def partitions(self) -> dict[TopicPartition, TopicId]:
        """Each with the identity that its topic had."""
        return {at: self.topic_ids[at.topic] for at in self.positions if at.topic in self.topic_ids}

    def to_document(self) -> dict[str, Any]:
        """Sorted, so that equal marks are equal text."""
        document: dict[str, Any] = {**to_document(self.positions)}
        if self.topic_ids:
            document[TOPIC_IDS] = {topic: format_topic_id(each) for topic, each in sorted(self.topic_ids.items())}
        if self.began is not None:
            document[BEGAN] = to_document(self.began)
        return document

    @classmethod
    def from_document(cls, document: Any) -> Mark:
        """ForeignCheckpoint if it is of a source of another kind."""
        try:
            positions = _positions({topic: each for topic, each in document.items() if topic not in {TOPIC_IDS, BEGAN}})
            began = _positions(document[BEGAN]) if BEGAN in document else None
            topic_ids = {topic: parse_topic_id(text) for topic, text in document.get(TOPIC_IDS, {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise ForeignCheckpoint(
                f"the checkpoint says that this source has come to {document!r}, which are no positions in topics: it "
                "is the checkpoint of another query, with a source of another kind. Nothing was read. Give each query "
                "a checkpointLocation of its own"
            ) from error
        return cls(positions, topic_ids, began)


def _positions(document: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in document.items()
        for partition, offset in offsets.items()
    }
