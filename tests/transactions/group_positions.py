"""Offsets of a group without members, written and read as any client may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwise import ANSWER_WITHIN_S, COORDINATOR_MOVES, READ_TOPIC, WITHIN_S, KeyType, find_coordinator

from tidelog.errors import ErrorCode
from tidelog.testing import eventually
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

if TYPE_CHECKING:
    from tidelog.testing.cluster import ClusterProcesses

_AGAIN = COORDINATOR_MOVES | {ErrorCode.UNSTABLE_OFFSET_COMMIT}


def commit_plainly(cluster: ClusterProcesses, group: str, offset: int) -> None:
    """Of the first partition, in no transaction."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    request = OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=READ_TOPIC, partitions=[partition])]
    )

    def committed() -> bool:
        try:
            broker = find_coordinator(cluster, group, KeyType.GROUP)
            with cluster.connect(broker, timeout_s=ANSWER_WITHIN_S) as client:
                reply = client.call(request, 8, OffsetCommitResponse)
        except OSError:
            return False
        code = reply.topics[0].partitions[0].error_code
        assert not code or code in _AGAIN, ErrorCode(code).name
        return not code

    eventually(committed, f"an offset of {group} to be committed", within_s=WITHIN_S)


def positions_of(cluster: ClusterProcesses, group: str) -> dict[int, int]:
    """Of the first two partitions, once no transaction may change them."""
    wanted = OffsetFetchRequestTopic(name=READ_TOPIC, partition_indexes=[0, 1])
    request = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=True)

    def found() -> dict[int, int] | None:
        try:
            broker = find_coordinator(cluster, group, KeyType.GROUP)
            with cluster.connect(broker, timeout_s=ANSWER_WITHIN_S) as client:
                reply = client.call(request, 7, OffsetFetchResponse)
        except OSError:
            return None
        codes = {reply.error_code} | {each.error_code for topic in reply.topics for each in topic.partitions}
        assert codes <= {ErrorCode.NONE} | _AGAIN, codes
        if codes != {ErrorCode.NONE}:
            return None
        return {each.partition_index: each.committed_offset for each in reply.topics[0].partitions}

    return eventually(found, f"offsets of {group}", within_s=WITHIN_S)
