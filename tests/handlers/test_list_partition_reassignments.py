"""ListPartitionReassignments: what is being moved, and nothing else."""

from __future__ import annotations

from controller_at_hand import Desk, refused_everywhere, with_controller

from tidelog.handlers.list_partition_reassignments import HANDLER
from tidelog.types import TopicPartition
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


def test_what_moves_is_listed() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2], 1: [1, 2]})
        await desk.controller.alter_reassignments({TopicPartition("t", 1): [2, 3]})
        everything = ListPartitionReassignmentsRequest(topics=None)
        named = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 7])
        for request in (everything, ListPartitionReassignmentsRequest(topics=[named])):
            reply = await desk.ask(HANDLER, request)
            (topic,) = reply.topics
            (move,) = topic.partitions
            assert (topic.name, move.partition_index) == ("t", 1)
            assert (move.replicas, move.adding_replicas, move.removing_replicas) == ([2, 3, 1], [3], [1])
        other = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
        assert (await desk.ask(HANDLER, ListPartitionReassignmentsRequest(topics=[other]))).topics == []

    with_controller(story)


def test_only_the_controller_answers() -> None:
    refused_everywhere(HANDLER, ListPartitionReassignmentsRequest(topics=None))
