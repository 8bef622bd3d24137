"""Logs on a broker's disk that the cluster does not have there. Pure.

Such a log is parted with only if it is certain what became of its partition. A topic that nobody knows is no such
certainty: the coordination store may have been lost, and the log be all that is left of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from tidelog.controller.image import ClusterImage
    from tidelog.types import TopicId, TopicPartition


def why_stray(image: ClusterImage, broker_id: int, place: TopicPartition, topic_id: TopicId) -> str | None:
    """Why a log to which the controller gave no role is not needed here; None if that is not certain."""
    topic = image.topics.get(place.topic)
    if topic is None or topic_id == ZERO_TOPIC_ID:
        return None
    if topic.topic_id != topic_id:
        return "its topic was deleted, and another one has its name"
    if place.partition >= len(topic.partitions):
        return None
    replicas = topic.partitions[place.partition].replicas
    if not replicas or broker_id in replicas:
        return None
    return f"it was moved to brokers {list(replicas)}"
