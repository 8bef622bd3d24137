"""ElectLeaders: each partition has its own answer."""

from __future__ import annotations

import pytest
from controller_at_hand import Desk, refused_everywhere, with_controller

from tidelog.errors import ErrorCode
from tidelog.handlers.elect_leaders import HANDLER
from tidelog.types import TopicPartition
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions


def a_request(*partitions: int, election_type: int = 0) -> ElectLeadersRequest:
    wanted = [TopicPartitions(topic="t", partitions=list(partitions))] if partitions else None
    return ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)


def codes(reply: object) -> dict[int, int]:
    results = reply.replica_election_results  # type: ignore[attr-defined]
    return {each.partition_id: each.error_code for topic in results for each in topic.partition_result}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_partition_is_answered(version: int) -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2], 1: [2, 1]})
        reply = await desk.ask(HANDLER, a_request(0, 1, 2), version=version)
        assert reply.error_code == 0
        assert codes(reply) == {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            1: ErrorCode.ELECTION_NOT_NEEDED,
            2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        (topic,) = reply.replica_election_results
        assert all(each.error_message for each in topic.partition_result)

    with_controller(story)


def test_a_leader_goes_home() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [1, 2]})
        await desk.controller.alter_reassignments({TopicPartition("t", 0): [2, 1]})
        assert desk.partition().leader == 1
        reply = await desk.ask(HANDLER, a_request(0))
        assert codes(reply) == {0: ErrorCode.NONE}
        assert desk.partition().leader == 2
        assert codes(await desk.ask(HANDLER, a_request())) == {}, "what needs nothing is not listed"

    with_controller(story)


def test_an_unclean_election_helps_a_partition_without_a_leader() -> None:
    async def story(desk: Desk) -> None:
        await desk.create({0: [3]})
        await desk.kill(3)
        assert codes(await desk.ask(HANDLER, a_request(0, election_type=1))) == {
            0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        }

    with_controller(story)


def test_an_unknown_type_of_election_is_refused() -> None:
    async def story(desk: Desk) -> None:
        reply = await desk.ask(HANDLER, a_request(0, election_type=9))
        assert reply.error_code == ErrorCode.INVALID_REQUEST

    with_controller(story)


def test_only_the_controller_answers() -> None:
    refused_everywhere(HANDLER, a_request(0))


def test_the_oldest_version_says_it_for_each_partition() -> None:
    async def story(desk: Desk) -> None:
        assert codes(await desk.ask(HANDLER, a_request(0), version=0)) == {0: ErrorCode.NOT_CONTROLLER}

    with_controller(story, reigning=False)
