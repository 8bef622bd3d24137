"""Creating, growing, describing and deleting topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import (
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch_request,
    produce,
    try_create_topic,
    try_fetch,
    try_produce,
    values_in,
)

from tidelog.config.definition import ConfigSource
from tidelog.errors import ErrorCode
from tidelog.testing import RawClient, eventually
from tidelog.types import new_topic_id
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess, StartBroker


def plain(name: str, partitions: int = 1, factor: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=[])


def create(client: RawClient, *topics: CreatableTopic, version: int = 7) -> list[int]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000)
    return [result.error_code for result in client.call(request, version, CreateTopicsResponse).topics]


def grow(
    client: RawClient,
    topic: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
    version: int = 3,
) -> int:
    explicit = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=explicit)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)
    (result,) = client.call(request, version, CreatePartitionsResponse).results
    assert result.error_code == ErrorCode.NONE or result.error_message
    return result.error_code


def partition_count(client: RawClient, topic: str) -> int:
    return len(describe(client, topic).partitions)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_can_be_used_at_once(raw: RawClient, topic: str, version: int) -> None:
    assert create(raw, plain(topic, 3), version=version) == [ErrorCode.NONE]
    assert partition_count(raw, topic) == 3
    assert produce(raw, topic, batch_of([b"x"]), 2) == 0


def test_the_reply_tells_id_partitions_and_settings(raw: RawClient, topic: str) -> None:
    result = try_create_topic(raw, topic, 2, {"retention.ms": "1234"})
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert result.topic_id == describe(raw, topic).topic_id
    configs = {config.name: config for config in result.configs or []}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1234", ConfigSource.TOPIC)
    assert configs["cleanup.policy"].config_source != ConfigSource.TOPIC


def test_minus_one_asks_for_the_broker_s_defaults(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"num.partitions": "5"})
    with RawClient(broker.port) as client:
        result = try_create_topic(client, "t", -1, replication_factor=-1)
        assert result.error_code == ErrorCode.NONE
        assert (result.num_partitions, result.replication_factor) == (5, 1)
        assert partition_count(client, "t") == 5


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_topic_needs_partitions(raw: RawClient, topic: str, partitions: int) -> None:
    assert try_create_topic(raw, topic, partitions).error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 2, 100])
def test_there_must_be_as_many_brokers_as_replicas(raw: RawClient, topic: str, factor: int) -> None:
    result = try_create_topic(raw, topic, replication_factor=factor)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message
    assert describe(raw, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_created_once(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert try_create_topic(raw, topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_twice_in_one_request_is_refused(raw: RawClient, topic: str) -> None:
    codes = create(raw, plain(topic), plain(topic), plain(f"{topic}-other"))
    assert codes.count(ErrorCode.NONE) == 1
    assert set(codes) == {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
    assert describe(raw, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(raw, f"{topic}-other").error_code == ErrorCode.NONE


def test_one_bad_topic_does_not_keep_the_others_from_being_created(raw: RawClient, topic: str) -> None:
    codes = create(raw, plain(topic), plain("not/legal"), plain(f"{topic}-b", factor=9), plain(f"{topic}-c"))
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.NONE,
    ]


def assigned(name: str, assignment: dict[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    wanted = plain(name, partitions, factor)
    wanted.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignment.items()
    ]
    return wanted


def test_replicas_can_be_assigned(raw: RawClient, topic: str) -> None:
    assert create(raw, assigned(topic, {0: [0], 1: [0]})) == [ErrorCode.NONE]
    assert partition_count(raw, topic) == 2


def test_an_assignment_excludes_counts(raw: RawClient, topic: str) -> None:
    assert create(raw, assigned(topic, {0: [0]}, partitions=1)) == [ErrorCode.INVALID_REQUEST]
    assert create(raw, assigned(topic, {0: [0]}, factor=1)) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    "assignment", [{0: [7]}, {0: []}, {1: [0]}, {0: [0], 2: [0]}, {0: [0, 0]}, {0: [0], 1: [0, 1]}]
)
def test_an_impossible_assignment_is_refused(raw: RawClient, topic: str, assignment: dict[int, list[int]]) -> None:
    assert create(raw, assigned(topic, assignment)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_validate_only_checks_everything_and_creates_nothing(raw: RawClient, topic: str) -> None:
    fine = try_create_topic(raw, topic, 3, validate_only=True)
    assert (fine.error_code, fine.num_partitions) == (ErrorCode.NONE, 3)
    wrong = try_create_topic(raw, topic, replication_factor=9, validate_only=True)
    assert wrong.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert describe(raw, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "burn"),
        ("compression.type", "rar"),
        ("message.timestamp.type", "Whenever"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", "-1"),
        ("segment.bytes", "10"),
        ("retention.ms", None),
    ],
)
def test_settings_are_checked_when_a_topic_is_created(raw: RawClient, topic: str, key: str, value: str | None) -> None:
    result = try_create_topic(raw, topic, configs={key: value})
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert key in str(result.error_message)
    assert describe(raw, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 7))
def test_a_deleted_topic_is_gone_at_once(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"x"]))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic)] if version >= 6 else [],
        topic_names=[topic] if version < 6 else [],
        timeout_ms=10_000,
    )
    (result,) = raw.call(request, version, DeleteTopicsResponse).responses
    assert (result.name, result.error_code) == (topic, ErrorCode.NONE)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(raw, topic).error_code == unknown
    assert try_produce(raw, topic, batch_of([b"x"])).error_code == unknown
    assert try_fetch(raw, fetch_request(topic, 0)).error_code == unknown


def test_topics_are_deleted_by_id(raw: RawClient, topic: str) -> None:
    topic_id = create_topic(raw, topic)
    states = [DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=new_topic_id())]
    reply = raw.call(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6, DeleteTopicsResponse)
    by_id = {result.topic_id: result for result in reply.responses}
    assert (by_id[topic_id].error_code, by_id[topic_id].name) == (ErrorCode.NONE, topic)
    assert by_id[states[1].topic_id].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert describe(raw, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_an_unknown_topic_is_refused(raw: RawClient, topic: str) -> None:
    assert delete_topic(raw, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deletion_can_be_forbidden(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"delete.topic.enable": "false"})
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        assert delete_topic(client, "t") == ErrorCode.TOPIC_DELETION_DISABLED
        assert describe(client, "t").error_code == ErrorCode.NONE


def test_a_waiting_fetch_learns_that_its_topic_was_deleted(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic)
    waiting_request = fetch_request(topic, 0, max_wait_ms=600_000)
    with RawClient(broker.port) as waiting:
        waiting.send(waiting_request, 12)
        delete_topic(raw, topic)
        assert waiting.receive_frame() != b""


def test_a_re_created_topic_starts_empty(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"of the first life"]))
    delete_topic(raw, topic)
    create_topic(raw, topic, partitions=2)
    assert partition_count(raw, topic) == 2
    assert produce(raw, topic, batch_of([b"of the second life"])) == 0
    assert values_in(raw, topic) == [b"of the second life"]


def test_the_files_of_a_deleted_topic_go_away(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"log.segment.delete.delay.ms": "0", "file.delete.delay.ms": "0"})
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs={"file.delete.delay.ms": "0"})
        produce(client, "t", batch_of([b"x"]))
        assert any(path.name.startswith("t-0") for path in broker.data_dir.iterdir())
        delete_topic(client, "t")
        eventually(
            lambda: not any(path.name.startswith("t-0") for path in broker.data_dir.iterdir()),
            "the directory of t-0 to be removed",
        )


@pytest.mark.parametrize("version", range(4))
def test_added_partitions_can_be_used_at_once(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"before"]))
    assert grow(raw, topic, 3, version=version) == ErrorCode.NONE
    assert partition_count(raw, topic) == 3
    assert produce(raw, topic, batch_of([b"after"]), 2) == 0
    assert values_in(raw, topic, 0) == [b"before"]


@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_the_number_of_partitions_only_grows(raw: RawClient, topic: str, count: int) -> None:
    create_topic(raw, topic, partitions=2)
    assert grow(raw, topic, count) == ErrorCode.INVALID_PARTITIONS
    assert partition_count(raw, topic) == 2


def test_growing_checks_its_input(raw: RawClient, topic: str) -> None:
    assert grow(raw, topic, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(raw, topic)
    assert grow(raw, topic, 3, [[0]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(raw, topic, 2, [[5]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(raw, topic, 2, validate_only=True) == ErrorCode.NONE
    assert partition_count(raw, topic) == 1
    assert grow(raw, topic, 2, [[0]]) == ErrorCode.NONE
    assert partition_count(raw, topic) == 2


def pages(
    client: RawClient, names: list[str], limit: int, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return client.call(request, 0, DescribeTopicPartitionsResponse)


def test_describing_partitions_lists_eligible_leaders_empty_not_null(raw: RawClient, topic: str) -> None:
    topic_id = create_topic(raw, topic, partitions=2)
    reply = pages(raw, [topic], 2000)
    (entry,) = reply.topics
    assert (entry.error_code, entry.topic_id, reply.next_cursor) == (ErrorCode.NONE, topic_id, None)
    assert [partition.partition_index for partition in entry.partitions] == [0, 1]
    for partition in entry.partitions:
        assert partition.eligible_leader_replicas == []
        assert partition.last_known_elr == []
        assert (partition.leader_id, partition.isr_nodes, partition.replica_nodes) == (0, [0], [0])


def test_describing_partitions_in_pages_reaches_every_partition_once(raw: RawClient, topic: str) -> None:
    names = sorted(f"{topic}-{letter}" for letter in "abc")
    for name in names:
        create_topic(raw, name, partitions=3)
    seen: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    for _ in range(10):
        reply = pages(raw, names, 2, cursor)
        page = [(entry.name, partition.partition_index) for entry in reply.topics for partition in entry.partitions]
        assert 1 <= len(page) <= 2
        seen += page
        if reply.next_cursor is None:
            break
        cursor = Cursor(topic_name=reply.next_cursor.topic_name, partition_index=reply.next_cursor.partition_index)
    assert seen == [(name, partition) for name in names for partition in range(3)]


def test_describing_an_unknown_topic_is_refused(raw: RawClient, topic: str) -> None:
    (entry,) = pages(raw, [topic], 2000).topics
    assert (entry.name, entry.error_code) == (topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_tell_what_each_partition_takes(
    raw: RawClient, topic: str, broker: BrokerProcess, version: int
) -> None:
    create_topic(raw, topic, partitions=2)
    batch = batch_of([bytes(1000)])
    produce(raw, topic, batch, 1)
    wanted = [DescribableLogDirTopic(topic=topic, partitions=[0, 1])]
    (directory,) = raw.call(DescribeLogDirsRequest(topics=wanted), version, DescribeLogDirsResponse).results
    assert directory.error_code == ErrorCode.NONE
    assert directory.log_dir == str(broker.data_dir)
    (entry,) = directory.topics
    sizes = {partition.partition_index: partition.partition_size for partition in entry.partitions}
    assert (entry.name, sizes) == (topic, {0: 0, 1: len(batch)})
    if version >= 4:
        assert directory.total_bytes >= directory.usable_bytes > 0


def test_null_asks_for_the_log_dirs_of_all_topics(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    (directory,) = raw.call(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse).results
    assert topic in {entry.name for entry in directory.topics}
