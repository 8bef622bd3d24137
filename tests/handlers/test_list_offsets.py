"""ListOffsets on a leader that does not yet know how far its predecessor had come."""

from __future__ import annotations

import pytest
from handler_cases import Around, around
from replica_cases import NOW_MS, A, B, C, role

from tidelog.errors import ErrorCode
from tidelog.handlers.list_offsets import EARLIEST, HANDLER, LATEST, MAX_TIMESTAMP
from tidelog.records.build import build_batch
from tidelog.records.record import Record
from tidelog.types import LeaderEpoch
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

UNKNOWN = ErrorCode.OFFSET_NOT_AVAILABLE


def newly_leading(broker: Around) -> None:
    """It followed B up to 3, heard that 1 of that is safe, and leads now."""
    broker.node.take(role(B, 1))
    batches = b"".join(
        build_batch([Record(offset, NOW_MS + offset, None, b"x")], leader_epoch=LeaderEpoch(1)) for offset in range(3)
    )
    broker.node.partition().followed(batches, 1, 0, NOW_MS)
    broker.node.take(role(A, 2))


def ask(broker: Around, timestamp: int, version: int = 11, isolation: int = 0) -> tuple[int, int]:
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=2, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="orders", partitions=[part])]
    asked = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    reply = broker.ask(HANDLER, asked, version, None)
    (result,) = reply.topics[0].partitions  # type: ignore[union-attr]
    return result.error_code, result.offset


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (LATEST, 11, (UNKNOWN, -1)),
        (LATEST, 5, (UNKNOWN, -1)),
        (LATEST, 4, (ErrorCode.LEADER_NOT_AVAILABLE, -1)),
        (EARLIEST, 11, (0, 0)),
        (NOW_MS, 11, (0, 0)),
        (NOW_MS + 1, 11, (UNKNOWN, -1)),
        (NOW_MS + 9, 11, (UNKNOWN, -1)),
        (MAX_TIMESTAMP, 11, (UNKNOWN, -1)),
    ],
    ids=["end", "end, v5", "end, v4", "start", "a time that is safe", "one that is not", "one to come", "latest time"],
)
def test_no_end_is_told_that_may_be_too_low(timestamp: int, version: int, expected: tuple[int, int]) -> None:
    async def story(broker: Around) -> None:
        newly_leading(broker)
        for isolation in (0, 1):
            assert ask(broker, timestamp, version, isolation) == expected

    around(story)


def test_the_end_is_told_once_the_followers_have_shown_themselves() -> None:
    async def story(broker: Around) -> None:
        newly_leading(broker)
        for each, offset in ((B, 3), (C, 2)):
            broker.node.partition().fetched(each, offset, 0)
        assert ask(broker, LATEST) == (UNKNOWN, -1)
        broker.node.partition().fetched(C, 3, 0)
        assert ask(broker, LATEST) == (0, 3)
        broker.node.append(b"y")
        assert ask(broker, LATEST) == (0, 3)
        assert ask(broker, NOW_MS + 9) == (0, -1)

    around(story)
