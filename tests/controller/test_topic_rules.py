"""What a topic may be called and how it may be made, with the error code Kafka answers for each mistake."""

from __future__ import annotations

import pytest

from tidelog.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.controller.topic_rules import TopicSpec, check_free, check_name, plan_assignment, plan_growth
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import new_topic_id


def an_image(*topics: str, brokers: int = 3) -> ClusterImage:
    image = ClusterImage("cluster", 0)
    for broker in range(brokers):
        image.brokers[broker] = BrokerImage(broker, {})
    for name in topics:
        image.put_topic(TopicImage(name, new_topic_id(), [PartitionImage((0, 1), (0, 1), 0, 0)]))
    return image


def a_spec(partitions: int = -1, factor: int = -1, assignment: dict[int, list[int]] | None = None) -> TopicSpec:
    return TopicSpec("new", partitions, factor, assignment or {}, {})


def refusal_of(spec: TopicSpec) -> ErrorCode:
    with pytest.raises(BrokerError) as refusal:
        plan_assignment(spec, an_image(), default_partitions=1, default_replication_factor=1, start=0)
    return refusal.value.code


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 249, "...", "-"])
def test_legal_names_pass(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a:b", "å", "a\n", "a\x00"])
def test_illegal_names_are_invalid_topic_exceptions(name: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        check_name(name)
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_taken_name_exists_already() -> None:
    with pytest.raises(BrokerError) as refusal:
        check_free("taken", an_image("taken"))
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(("taken", "wanted"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_names_that_differ_only_in_dot_and_underscore_collide(taken: str, wanted: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        check_free(wanted, an_image(taken))
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_minus_one_means_the_brokers_defaults() -> None:
    assignment = plan_assignment(a_spec(), an_image(), default_partitions=4, default_replication_factor=2, start=0)
    assert len(assignment) == 4
    assert all(len(replicas) == 2 for replicas in assignment)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (a_spec(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (a_spec(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (a_spec(partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (a_spec(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (a_spec(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (a_spec(partitions=1, assignment={0: [0]}), ErrorCode.INVALID_REQUEST),
        (a_spec(assignment={1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_spec(assignment={0: [0], 2: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_spec(assignment={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_spec(assignment={0: [0], 1: [0, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_spec(assignment={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_spec(assignment={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_topics_are_refused_with_kafkas_code(spec: TopicSpec, code: ErrorCode) -> None:
    assert refusal_of(spec) is code


def test_an_explicit_assignment_is_taken_as_it_is() -> None:
    spec = a_spec(assignment={1: [2, 0], 0: [1, 2]})
    assignment = plan_assignment(spec, an_image(), default_partitions=1, default_replication_factor=1, start=0)
    assert assignment == ((1, 2), (2, 0))


def test_partitions_can_only_grow() -> None:
    image = an_image("topic")
    for count in (0, 1):
        with pytest.raises(BrokerError) as refusal:
            plan_growth(image.topic("topic"), count, None, image)
        assert refusal.value.code is ErrorCode.INVALID_PARTITIONS


def test_growth_keeps_the_replication_factor() -> None:
    image = an_image("topic")
    added = plan_growth(image.topic("topic"), 4, None, image)
    assert len(added) == 3
    assert all(len(replicas) == 2 for replicas in added)


def test_explicit_growth_must_name_every_new_partition() -> None:
    image = an_image("topic")
    assert plan_growth(image.topic("topic"), 3, [[1, 2], [2, 0]], image) == ((1, 2), (2, 0))
    with pytest.raises(BrokerError) as refusal:
        plan_growth(image.topic("topic"), 3, [[1, 2]], image)
    assert refusal.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
