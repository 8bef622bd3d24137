"""Moving partitions between brokers in a running cluster, and leaders that ask for other in-sync replicas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cluster_double import Cluster, live, until_idle

from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from tidelog.znodes import nodes, paths

if TYPE_CHECKING:
    from tidelog.controller.image import PartitionImage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def of(cluster: Cluster, number: int = 0) -> PartitionImage:
    return cluster.controller.state.topics["t"].partitions[number]


async def stored_assignment(cluster: Cluster) -> nodes.TopicAssignment:
    return nodes.TopicAssignment.decode(paths.topic("t"), (await cluster.admin.get(paths.topic("t")))[0])


def test_a_partition_moves_as_its_new_replicas_get_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2]})
        controller = cluster.controller
        assert await controller.alter_reassignments({T0: [3, 4]}) == {}
        assert (await stored_assignment(cluster)).adding == {0: (3, 4)}
        assert (await controller.list_reassignments(None)).keys() == {T0}
        await cluster.check_agreement()
        assert T0 in cluster.members[4].told.roles
        assert await cluster.grow_isr("t", 0, 1, 2, 3) is ErrorCode.NONE
        assert of(cluster).reassigning
        assert await cluster.grow_isr("t", 0, 1, 2, 3, 4) is ErrorCode.NONE
        await cluster.check_agreement()
        assert (of(cluster).replicas, of(cluster).leader, of(cluster).isr) == ((3, 4), 3, (3, 4))
        assert await controller.list_reassignments(None) == {}
        assert T0 not in cluster.members[1].told.roles, "it has deleted its replica"

    live(story, brokers=4)


def test_a_move_can_be_cancelled() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2]})
        controller = cluster.controller
        await controller.alter_reassignments({T0: [3]})
        assert await controller.alter_reassignments({T0: None}) == {}
        assert (of(cluster).replicas, of(cluster).isr) == ((1, 2), (1, 2))
        await cluster.check_agreement()
        assert T0 not in cluster.members[3].told.roles
        refused = await controller.alter_reassignments({T0: None})
        assert refused[T0].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    live(story)


def test_impossible_moves_are_refused_one_by_one() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2], 1: [2, 3]})
        controller = cluster.controller
        refused = await controller.alter_reassignments({T0: [1, 9], T1: [1, 2], TopicPartition("u", 0): [1]})
        assert {each: error.code for each, error in refused.items()} == {
            T0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            TopicPartition("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert of(cluster, 1).reassigning
        refused = await controller.alter_reassignments({T0: [3]}, may_change_factor=False)
        assert refused[T0].code is ErrorCode.INVALID_REPLICATION_FACTOR
        with pytest.raises(BrokerError) as error:
            await controller.grow("t", 3, None, validate_only=False)
        assert error.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert (await controller.list_reassignments([T0])) == {}
        await cluster.check_agreement()

    live(story)


def test_the_next_controller_goes_on_with_a_move() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        await cluster.controller.alter_reassignments({T0: [3, 4]})
        await cluster.kill(1)
        await cluster.settled()
        assert of(cluster).adding == (4,)
        assert await cluster.grow_isr("t", 0, 2, 3, 4) is ErrorCode.NONE
        await cluster.check_agreement()
        assert of(cluster).replicas == (3, 4)

    live(story, brokers=4)


def test_kafkas_tools_move_by_a_node_that_stays_until_all_is_done() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2], 1: [1, 2]})
        moves = [
            {"topic": "t", "partition": 0, "replicas": [2, 3]},
            {"topic": "t", "partition": 1, "replicas": [2, 1]},
            {"topic": "t", "partition": 7, "replicas": [2, 1]},
        ]
        data = json.dumps({"version": 1, "partitions": moves}).encode()
        await cluster.admin.create(paths.REASSIGN_PARTITIONS, data)
        await cluster.check_agreement()
        assert await cluster.admin.exists(paths.REASSIGN_PARTITIONS)
        assert (of(cluster, 0).adding, of(cluster, 1).replicas) == ((3,), (2, 1))
        await cluster.kill(1)
        await cluster.settled()
        assert await cluster.grow_isr("t", 0, 2, 3) is ErrorCode.NONE
        await cluster.check_agreement()
        assert await cluster.admin.exists(paths.REASSIGN_PARTITIONS) is None
        assert of(cluster).replicas == (2, 3)
        await cluster.admin.create(paths.REASSIGN_PARTITIONS, b"{}")
        await until_idle(cluster.controller)
        assert await cluster.admin.exists(paths.REASSIGN_PARTITIONS) is None

    live(story)


def test_a_leader_changes_its_in_sync_replicas_and_everybody_hears_of_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2, 3]})
        before = of(cluster)
        assert await cluster.grow_isr("t", 0, 1, 3) is ErrorCode.NONE
        state, version = await cluster.stored_state("t", 0)
        assert (state.isr, state.leader_epoch, version) == ((1, 3), before.leader_epoch, before.partition_epoch + 1)
        await cluster.check_agreement()
        assert await cluster.ask_isr("t", 0, before, 1) is ErrorCode.INVALID_UPDATE_VERSION
        assert await cluster.ask_isr("t", 0, before, 1, 3) is ErrorCode.NONE, "asked again"

    live(story)


def test_an_old_leader_gets_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 3]})
        before = of(cluster)
        await cluster.members[2].bounce()
        await cluster.settled()
        assert of(cluster).leader == 3
        assert await cluster.ask_isr("t", 0, before, 2) is ErrorCode.FENCED_LEADER_EPOCH
        assert of(cluster).isr == (3,)

    live(story)


def test_a_request_from_an_earlier_life_of_a_broker_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2]})
        epoch = cluster.members[1].told.epoch
        request = AlterPartitionRequest(broker_id=1, broker_epoch=epoch - 1, topics=[])
        for broker_id, broker_epoch in ((1, epoch - 1), (9, epoch)):
            with pytest.raises(BrokerError) as refused:
                await cluster.controller.alter_partition(broker_id, broker_epoch, request)
            assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH

    live(story)


def test_each_partition_of_a_request_has_its_own_answer() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2], 1: [2, 1]})
        controller = cluster.controller
        told = cluster.members[1].told
        mine = [BrokerState(broker_id=1, broker_epoch=told.epoch)]
        request = AlterPartitionRequest(
            broker_id=1,
            broker_epoch=told.epoch,
            topics=[
                TopicData(
                    topic_id=controller.state.topics["t"].topic_id,
                    partitions=[
                        PartitionData(partition_index=at, leader_epoch=0, partition_epoch=0, new_isr_with_epochs=mine)
                        for at in (0, 1, 2)
                    ],
                ),
                TopicData(
                    topic_id=b"?" * 16,
                    partitions=[
                        PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0, new_isr_with_epochs=mine)
                    ],
                ),
            ],
        )
        response = await controller.alter_partition(1, told.epoch, request)
        answers = [(each.partition_index, each.error_code, each.isr) for each in response.topics[0].partitions]
        assert answers == [
            (0, ErrorCode.NONE, [1]),
            (1, ErrorCode.INVALID_REQUEST, []),
            (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ]
        assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    live(story)


def test_a_controlled_shutdown_moves_leaders_before_it_is_answered() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("alone", assignment={0: [2]})
        await cluster.create("weak", assignment={0: [2, 3]})
        await cluster.grow_isr("weak", 0, 2)
        await cluster.create(partitions=6, factor=3)
        told = cluster.members[2].told
        remaining = await cluster.controller.controlled_shutdown(2, told.epoch)
        assert remaining == [TopicPartition("weak", 0)]
        for partition in cluster.controller.state.topics["t"].partitions:
            assert partition.leader != 2
            assert 2 not in partition.isr
        for broker_id in (1, 3):
            assert len(cluster.members[broker_id].told.leads()) == 3, "successors lead by now"
        await cluster.check_agreement()
        assert await cluster.grow_isr("t", 0, *of(cluster).isr, 2) is ErrorCode.INELIGIBLE_REPLICA
        await cluster.kill(2)
        await cluster.add(2)
        await cluster.settled()
        assert await cluster.grow_isr("t", 0, *of(cluster).isr, 2) is ErrorCode.NONE, "it has come back to stay"

    live(story)


def test_only_the_broker_of_today_can_ask_to_stop() -> None:
    async def story(cluster: Cluster) -> None:
        epoch = cluster.members[2].told.epoch
        for broker_id, broker_epoch, code in (
            (2, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
            (9, epoch, ErrorCode.BROKER_NOT_AVAILABLE),
        ):
            with pytest.raises(BrokerError) as refused:
                await cluster.controller.controlled_shutdown(broker_id, broker_epoch)
            assert refused.value.code is code

    live(story)


def test_only_a_broker_that_is_away_can_be_unregistered() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 3]})
        await cluster.admin.create(paths.broker_config(7))
        controller = cluster.controller
        for broker_id, code in ((3, ErrorCode.INVALID_REQUEST), (9, ErrorCode.BROKER_ID_NOT_REGISTERED)):
            with pytest.raises(BrokerError) as refused:
                await controller.unregister_broker(broker_id)
            assert refused.value.code is code
        await controller.unregister_broker(7)
        assert await cluster.admin.exists(paths.broker_config(7)) is None
        await cluster.kill(3)
        await cluster.settled()
        await controller.unregister_broker(3)

    live(story)
