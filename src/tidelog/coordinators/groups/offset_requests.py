"""OffsetCommit (v2-10), TxnOffsetCommit (v0-5), OffsetFetch (v1-10) and OffsetDelete (v0) of one group.

Whether a member may commit is the group's question, answered before these are called. OffsetCommit v2-4 may give a
commit a retention of its own · OffsetFetch v2 topics null means all · v7 waits for open transactions · v8 several
groups · OffsetCommit and OffsetFetch v10 name topics by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog.coordinators.decision import Transaction
from tidelog.coordinators.groups.offsets import EXPIRING_VALUE_VERSION, NO_EXPIRY, OFFSET_VALUE_VERSION, Burial
from tidelog.coordinators.groups.pending_offsets import Place
from tidelog.errors import ErrorCode
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.coordinators.decision import Decision, Ticket
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.offsets import OffsetBook
    from tidelog.coordinators.groups.topics import Caller, ClusterTopics
    from tidelog.wire.messages.offset_commit import OffsetCommitRequest
    from tidelog.wire.messages.offset_delete import OffsetDeleteRequest
    from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

TOPIC_IDS_SINCE = 10

AskedTopic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
AskedPartition: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition

_RECORD_OVERHEAD_BYTES = 48
"""What a stored commit takes beside its strings, generously."""


# --- commit ---


def commit(
    ticket: Ticket,
    request: OffsetCommitRequest,
    caller: Caller,
    code: ErrorCode,
    config: GroupConfig,
    now_ms: int,
    out: Decision,
) -> None:
    """`code` is what the group says of the one who commits: if it refuses, it refuses every partition."""
    names = [_commit_topic(topic, caller) for topic in request.topics]
    if not code and _stored_bytes(request.group_id, request.topics, names) > config.record_bytes_max:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    expire_ms = NO_EXPIRY if request.retention_time_ms < 0 else now_ms + request.retention_time_ms
    topics = []
    for topic, name in zip(request.topics, names, strict=True):
        answers = []
        count = (caller.topics.partitions(name) or 0) if isinstance(name, str) else 0
        for partition in topic.partitions:
            answer = code or (name if isinstance(name, ErrorCode) else _check_partition(partition, count, config))
            if not answer and isinstance(name, str):
                _store(request.group_id, name, partition, expire_ms, now_ms, out)
            answers.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=answer))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    out.reply(ticket, OffsetCommitResponse(topics=topics))


def commit_in_transaction(
    ticket: Ticket,
    request: TxnOffsetCommitRequest,
    caller: Caller,
    code: ErrorCode,
    config: GroupConfig,
    now_ms: int,
    out: Decision,
) -> None:
    """As `commit`. What is stored counts once the producer's transaction is committed."""
    names = [_commit_topic(topic, caller) for topic in request.topics]
    if not code and _stored_bytes(request.group_id, request.topics, names) > config.record_bytes_max:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    topics = []
    for topic, name in zip(request.topics, names, strict=True):
        answers = []
        count = (caller.topics.partitions(name) or 0) if isinstance(name, str) else 0
        for partition in topic.partitions:
            answer = code or (name if isinstance(name, ErrorCode) else _check_partition(partition, count, config))
            if not answer and isinstance(name, str):
                _store(request.group_id, name, partition, NO_EXPIRY, now_ms, out)
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=answer)
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    out.transaction = Transaction(request.producer_id, request.producer_epoch, caller.guard)
    out.reply(ticket, TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics))


def _commit_topic(topic: AskedTopic, caller: Caller) -> str | ErrorCode:
    """The name under which the topic's offsets are stored, or why there is none."""
    if isinstance(topic, OffsetCommitRequestTopic) and caller.version >= TOPIC_IDS_SINCE:
        return caller.topics.name(topic.topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    if caller.topics.partitions(topic.name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic.name


def _check_partition(partition: AskedPartition, count: int, config: GroupConfig) -> ErrorCode:
    if not 0 <= partition.partition_index < count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(partition.committed_metadata or "") > config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _store(group_id: str, topic: str, partition: AskedPartition, expire_ms: int, now_ms: int, out: Decision) -> None:
    out.record(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
        ),
        OFFSET_VALUE_VERSION if expire_ms == NO_EXPIRY else EXPIRING_VALUE_VERSION,
    )


def _stored_bytes(group_id: str, topics: Iterable[AskedTopic], names: Iterable[str | ErrorCode]) -> int:
    """About how long the batch will be, and rather too long than too short."""
    group_bytes = len(group_id.encode())
    total = 0
    for topic, name in zip(topics, names, strict=True):
        if isinstance(name, str):
            each = _RECORD_OVERHEAD_BYTES + group_bytes + len(name.encode())
            total += each * len(topic.partitions)
            total += sum(3 * len(partition.committed_metadata or "") for partition in topic.partitions)
    return total


# --- fetch ---


def asked_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group that is asked for, whichever form the request has."""
    if request.groups:
        return request.groups[0]
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )


def fetch(
    group: OffsetFetchRequestGroup, caller: Caller, book: OffsetBook, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Unknown partitions, and groups that never were, have no offset: that is an answer, not an error."""
    by_id = caller.version >= TOPIC_IDS_SINCE
    wanted = _everything(group.group_id, book, caller.topics, by_id=by_id) if group.topics is None else group.topics
    topics = []
    for topic in wanted:
        name = caller.topics.name(topic.topic_id) if by_id else topic.name
        topics.append(
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _no_offset(partition, ErrorCode.UNKNOWN_TOPIC_ID)
                    if name is None
                    else _fetch_partition(book, group.group_id, name, partition, require_stable=require_stable)
                    for partition in topic.partition_indexes
                ],
            )
        )
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _everything(
    group_id: str, book: OffsetBook, topics: ClusterTopics, *, by_id: bool
) -> list[OffsetFetchRequestTopics]:
    """All that the group has committed. A topic that is gone has no id by which it could be named."""
    everything = []
    for name, partitions in book.topics(group_id).items():
        topic_id = topics.topic_id(name) if by_id else bytes(16)
        if topic_id is not None:
            everything.append(
                OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(partitions))
            )
    return everything


def _fetch_partition(
    book: OffsetBook, group_id: str, topic: str, partition: int, *, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if require_stable and book.is_unstable(group_id, topic, partition):
        return _no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = book.get(group_id, topic, partition)
    if committed is None:
        return _no_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _no_offset(partition: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


# --- delete ---


def delete(
    ticket: Ticket,
    request: OffsetDeleteRequest,
    caller: Caller,
    book: OffsetBook,
    subscribed_to: Callable[[str], bool],
    config: GroupConfig,
    out: Decision,
) -> None:
    """What open transactions would commit is deleted as well, like all that came before."""
    burial = Burial(config.record_bytes_max // 2, out)
    topics = []
    for topic in request.topics:
        code = ErrorCode.NONE
        known = topic.name in book.topics(request.group_id) or caller.topics.partitions(topic.name) is not None
        if subscribed_to(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif not known:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers = []
        for partition in topic.partitions:
            index, answer = partition.partition_index, code
            if not code and book.stored_at(Place(request.group_id, topic.name, index)):
                fits = burial.bury(request.group_id, topic.name, index)
                answer = ErrorCode.NONE if fits else ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=answer))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    out.reply(ticket, OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics))
