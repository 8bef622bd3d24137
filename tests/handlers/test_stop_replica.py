"""StopReplica: replicas are stopped, and deleted if that is what the controller says."""

from __future__ import annotations

import pytest
from handler_cases import Around, around
from replica_cases import ORDERS, A, B, role

from tidelog.errors import ErrorCode
from tidelog.handlers.stop_replica import HANDLER
from tidelog.types import TopicPartition
from tidelog.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState


def request(*states: StopReplicaPartitionState, controller_epoch: int = 5) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=B,
        controller_epoch=controller_epoch,
        broker_epoch=-1,
        topic_states=[StopReplicaTopicState(topic_name="orders", partition_states=list(states))],
    )


def stop(partition: int = 0, *, epoch: int = 3, delete: bool = True) -> StopReplicaPartitionState:
    return StopReplicaPartitionState(partition_index=partition, leader_epoch=epoch, delete_partition=delete)


@pytest.mark.parametrize("delete", [False, True])
def test_a_replica_is_stopped_and_its_log_deleted_on_demand(delete: bool) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 3))
        reply = await broker.answer(HANDLER, request(stop(delete=delete)))
        (answer,) = reply.partition_errors
        assert (answer.topic_name, answer.partition_index, answer.error_code) == ("orders", 0, 0)
        assert not list(broker.node.replicas)
        assert (ORDERS in broker.node.store.logs) is not delete

    around(story)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.NONE), (4, ErrorCode.NONE), (-1, 0), (-2, 0)],
    ids=["older", "the same", "newer", "says none", "the topic is deleted"],
)
def test_an_order_from_an_earlier_reign_is_refused(epoch: int, code: int) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 3))
        reply = await broker.answer(HANDLER, request(stop(epoch=epoch)))
        assert reply.partition_errors[0].error_code == code
        assert bool(list(broker.node.replicas)) is bool(code)

    around(story)


def test_what_is_not_there_is_stopped_already() -> None:
    async def story(broker: Around) -> None:
        reply = await broker.answer(HANDLER, request(*(stop(number) for number in range(60))))
        assert {each.error_code for each in reply.partition_errors} == {0}

    around(story)


def test_a_disk_that_refuses_is_an_error_of_that_partition() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 3))
        broker.node.take(role(A, 3, place=TopicPartition("orders", 1)))
        broker.node.fs.fail("rename", 5)
        reply = await broker.answer(HANDLER, request(stop(0), stop(1)))
        assert [each.error_code for each in reply.partition_errors] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert ORDERS in broker.node.store.logs
        broker.node.fs.fail("rename", 5)
        reply = await broker.answer(HANDLER, request(stop(0), stop(1)))
        assert [each.error_code for each in reply.partition_errors] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        reply = await broker.answer(HANDLER, request(stop(0), stop(1)))
        assert [each.error_code for each in reply.partition_errors] == [0, 0]
        assert not broker.node.store.logs

    around(story)


@pytest.mark.parametrize(
    ("peer", "epoch", "code"),
    [(None, 6, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (B, 4, ErrorCode.STALE_CONTROLLER_EPOCH)],
)
def test_only_the_controller_of_the_day_is_obeyed(peer: int | None, epoch: int, code: ErrorCode) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 3))
        broker.services.fencing.controller_epoch = 5
        assert await broker.refusal(HANDLER, request(stop(), controller_epoch=epoch), peer) is code
        assert list(broker.node.replicas)

    around(story)
