"""AlterPartitionReassignments: moves begin and are cancelled, each partition with its own answer."""

from __future__ import annotations

from controller_at_hand import Desk, refused_everywhere, with_controller

from tidelog.errors import ErrorCode
from tidelog.handlers.alter_partition_reassignments import HANDLER
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


def a_request(
    *moves: tuple[int, list[int] | None], may_change_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=number, replicas=replicas) for number, replicas in moves]
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor, topics=[ReassignableTopic(name="t", partitions=partitions)]
    )


def codes(reply: object) -> list[tuple[int, int]]:
    return [
        (each.partition_index, each.error_code)
        for topic in reply.responses  # type: ignore[attr-defined]
        for each in topic.partitions
    ]


def test_moves_begin_and_are_cancelled() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2], 1: [1, 2]})
        for version in (0, 1):
            reply = await desk.ask(HANDLER, a_request((0, [2, 3]), (1, [1, 9]), (5, [1])), version=version)
            assert codes(reply) == [
                (0, ErrorCode.NONE),
                (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
                (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            assert desk.partition().adding == (3,)
        reply = await desk.ask(HANDLER, a_request((0, None), (1, None)))
        assert codes(reply) == [(0, ErrorCode.NONE), (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]
        assert reply.responses[0].partitions[1].error_message
        assert not desk.partition().reassigning

    with_controller(story)


def test_the_number_of_replicas_can_be_protected() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2]})
        reply = await desk.ask(HANDLER, a_request((0, [1, 2, 3]), may_change_factor=False))
        assert codes(reply) == [(0, ErrorCode.INVALID_REPLICATION_FACTOR)]

    with_controller(story)


def test_a_partition_named_twice_is_not_moved() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2]})
        reply = await desk.ask(HANDLER, a_request((0, [2, 3]), (0, [3, 1])))
        assert codes(reply) == [(0, ErrorCode.INVALID_REQUEST), (0, ErrorCode.INVALID_REQUEST)]
        assert not desk.partition().reassigning

    with_controller(story)


def test_only_the_controller_answers() -> None:
    refused_everywhere(HANDLER, a_request((0, [1])))
