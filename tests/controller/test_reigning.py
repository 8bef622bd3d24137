"""The controller on a real znode store, telling doubles of brokers: who reigns, and what becomes of partitions."""

from __future__ import annotations

import asyncio

import pytest
from cluster_double import Cluster, live, until, until_idle

from tidelog.config.alter import Alteration, AlterOperation
from tidelog.controller.image import NO_LEADER, PartitionImage
from tidelog.controller.topic_rules import TopicSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest
from tidelog.znodes import paths
from tidelog.znodes.errors import MultiError
from tidelog.znodes.store import Check, Create

T0 = TopicPartition("t", 0)


def of(cluster: Cluster, number: int = 0, topic: str = "t") -> PartitionImage:
    return cluster.controller.state.topics[topic].partitions[number]


def test_the_first_broker_reigns_and_the_others_know_it() -> None:
    async def story(cluster: Cluster) -> None:
        assert [member.controller.is_controller for member in cluster.members.values()] == [True, False, False]
        assert [member.controller.holder for member in cluster.members.values()] == [1, 1, 1]
        assert cluster.controller.epoch == 1
        assert (await cluster.admin.get(paths.CONTROLLER_EPOCH))[0] == b"1"
        await cluster.check_agreement()
        with pytest.raises(BrokerError) as refused:
            await cluster.members[2].controller.delete("t")
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    live(story)


def test_when_the_controller_dies_another_one_takes_over_where_it_was() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=6, factor=3)
        await cluster.kill(1)
        controller = await cluster.settled()
        assert controller.epoch == 2
        assert {member.controller.holder for member in cluster.members.values()} <= {2, 3}
        await cluster.check_agreement()
        leaders = {partition.leader for partition in controller.state.topics["t"].partitions}
        assert leaders == {2, 3}
        assert all(set(each.isr) == {2, 3} for each in controller.state.topics["t"].partitions)

    live(story)


def test_two_candidates_at_once_make_one_controller() -> None:
    async def story(cluster: Cluster) -> None:
        members = [await cluster.add(broker_id, stand=False) for broker_id in (1, 2, 3)]
        await asyncio.gather(*(member.controller.start() for member in members))
        await cluster.settled()
        assert cluster.controller.epoch == 1
        await cluster.check_agreement()

    live(story, brokers=0)


def test_every_write_of_a_reign_is_behind_the_fence() -> None:
    async def story(cluster: Cluster) -> None:
        store = cluster.members[1].store
        store.multis.clear()
        await cluster.create(partitions=4, factor=3, retention_ms="5")
        await cluster.kill(3)
        await until_idle(cluster.controller)
        await cluster.controller.delete("t")
        assert store.multis
        assert all(operations[0] == Check(paths.CONTROLLER_EPOCH, 1) for operations in store.multis)

    live(story)


def test_a_deposed_controller_writes_nothing_and_steps_down() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1]
        first.store.deafen()
        await cluster.admin.delete(paths.CONTROLLER)
        await until(lambda: any(cluster.members[each].controller.is_controller for each in (2, 3)))
        assert cluster.reigning() >= {1}, "it does not know yet"
        with pytest.raises(BrokerError) as refused:
            await first.controller.create(TopicSpec("t", 1, 1, {}, {}))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert 1 not in cluster.reigning()
        assert await cluster.admin.children(paths.TOPICS) == []
        await cluster.check_agreement()

    live(story)


def test_a_broker_that_knows_a_newer_controller_makes_the_old_one_look() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1]
        first.store.deafen()
        await cluster.admin.delete(paths.CONTROLLER)
        await until(lambda: any(cluster.members[each].controller.is_controller for each in (2, 3)))
        first.controller._power.reign.outboxes[2].brokers = True  # type: ignore[union-attr]
        first.controller._power.reign.couriers.wake()  # type: ignore[union-attr]
        await until(lambda: not first.controller.is_controller)

    live(story)


def test_a_new_topic_is_led_by_its_first_live_replicas_and_all_are_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=6, factor=3)
        partitions = cluster.controller.state.topics["t"].partitions
        assert [each.leader for each in partitions] == [each.replicas[0] for each in partitions]
        assert {each.leader for each in partitions} == {1, 2, 3}
        assert all(each.isr == each.replicas for each in partitions)
        for member in cluster.members.values():  # told before the answer
            assert len(member.told.roles) == 6
            assert len(member.told.leads()) == 2
        await cluster.check_agreement()

    live(story)


def test_a_topic_grows_and_its_new_partitions_are_new_to_brokers() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=2, factor=2)
        for member in cluster.members.values():
            member.told.requests.clear()
        await cluster.controller.grow("t", 5, None, validate_only=True)
        assert len(cluster.controller.state.topics["t"].partitions) == 2
        await cluster.controller.grow("t", 5, None, validate_only=False)
        await cluster.check_agreement()
        told = [request for member in cluster.members.values() for request in member.told.requests]
        states = [
            state
            for request in told
            if isinstance(request, LeaderAndIsrRequest)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        assert {(state.partition_index, state.is_new) for state in states} == {(2, True), (3, True), (4, True)}
        with pytest.raises(BrokerError) as refused:
            await cluster.controller.grow("t", 5, None, validate_only=False)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS

    live(story)


def test_a_dry_run_changes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        topic = await cluster.controller.create(TopicSpec("t", 3, 2, {}, {}), validate_only=True)
        assert len(topic.partitions) == 3
        await cluster.check_agreement()
        assert not cluster.controller.state.topics

    live(story)


def test_leaders_move_when_a_broker_dies_and_it_returns_as_a_follower() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=6, factor=3)
        epochs = [each.leader_epoch for each in cluster.controller.state.topics["t"].partitions]
        await cluster.kill(2)
        await cluster.check_agreement()
        for partition, epoch in zip(cluster.controller.state.topics["t"].partitions, epochs, strict=True):
            assert partition.leader in (1, 3)
            assert set(partition.isr) == {1, 3}
            assert partition.leader_epoch == epoch + 1
        await cluster.add(2)
        await cluster.check_agreement()
        assert all(2 not in each.isr for each in cluster.controller.state.topics["t"].partitions)
        assert set(cluster.members[2].told.roles) == {TopicPartition("t", number) for number in range(6)}
        first = cluster.members[2].told.requests[0]
        assert isinstance(first, UpdateMetadataRequest), "it must know where leaders are before it follows them"

    live(story)


def test_many_leaders_move_in_few_transactions() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3000, factor=3)
        store = cluster.members[1].store
        store.multis.clear()
        await cluster.kill(3)
        await until_idle(cluster.controller)
        assert len(store.multis) == 4 + 7  # a thousand leaders first, then two thousand in-sync replicas
        leaderless = [at for at, each in enumerate(cluster.controller.state.topics["t"].partitions) if each.leader == 3]
        assert not leaderless
        await cluster.check_agreement()

    live(story)


def test_a_partition_whose_only_replica_dies_waits_for_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [3]})
        await cluster.kill(3)
        await cluster.check_agreement()
        assert (of(cluster).leader, of(cluster).isr) == (NO_LEADER, (3,))
        await cluster.add(3)
        await cluster.check_agreement()
        assert (of(cluster).leader, of(cluster).isr, of(cluster).leader_epoch) == (3, (3,), 2)

    live(story)


def test_an_unclean_leader_only_where_configured_and_as_soon_as_it_is() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("careful", assignment={0: [3, 2]})
        await cluster.create("daring", assignment={0: [3, 2]}, unclean_leader_election_enable="true")
        for topic in ("careful", "daring"):
            assert await cluster.grow_isr(topic, 0, 3) is ErrorCode.NONE
        await cluster.kill(3)
        await cluster.check_agreement()
        assert (of(cluster, 0, "careful").leader, of(cluster, 0, "daring").leader) == (NO_LEADER, 2)
        assert of(cluster, 0, "daring").recovering
        assert (await cluster.stored_state("daring", 0))[0].recovering
        cluster.members[1].settings.learned("careful", {"unclean.leader.election.enable": "true"})
        await cluster.check_agreement()
        assert (of(cluster, 0, "careful").leader, of(cluster, 0, "careful").isr) == (2, (2,))

    live(story)


def test_an_unclean_leader_when_it_is_allowed_for_all_topics() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [3, 2]})
        assert await cluster.grow_isr("t", 0, 3) is ErrorCode.NONE
        await cluster.kill(3)
        await cluster.settled()
        assert of(cluster).leader == NO_LEADER
        allow = [Alteration("unclean.leader.election.enable", AlterOperation.SET, "true")]
        await cluster.members[1].settings.alter_broker("", allow, replace=False, validate_only=False)
        await cluster.check_agreement()
        assert of(cluster).leader == 2

    live(story)


def test_a_new_topic_is_not_led_by_a_broker_that_is_about_to_stop() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.controlled_shutdown(2, cluster.members[2].told.epoch)
        await cluster.create(assignment={0: [2, 3]})
        await cluster.create("alone", assignment={0: [2]})
        found = [of(cluster), of(cluster, 0, "alone")]
        assert [(each.leader, each.isr) for each in found] == [(3, (3,)), (2, (2,))]
        await cluster.check_agreement()

    live(story)


def test_a_broker_that_bounces_unseen_leads_no_more_and_is_told_everything() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        member = cluster.members[2]
        member.told.roles.clear()
        member.told.leaders.clear()
        await member.bounce()
        await cluster.check_agreement()
        partitions = cluster.controller.state.topics["t"].partitions
        assert all(each.leader != 2 and 2 not in each.isr for each in partitions)

    live(story)


def test_a_bounce_that_no_controller_saw_is_seen_by_the_next_one() -> None:
    """The controller's own broker comes back before its successor has looked: its disk may be empty by now."""

    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        await cluster.create("alone", assignment={0: [1]})
        for broker_id in (2, 3):
            await cluster.members[broker_id].controller.stop()
        await cluster.kill(1)
        await cluster.add(1, stand=False)
        again = cluster.members[2]
        again.controller = again._new_controller()
        await again.controller.start()
        await cluster.check_agreement()
        partitions = cluster.controller.state.topics["t"].partitions
        assert all(each.leader != 1 and 1 not in each.isr for each in partitions)
        assert of(cluster, 0, "alone") == PartitionImage((1,), (1,), 1, 0)

    live(story)


def test_a_restart_of_the_whole_cluster_loses_nobody() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        for member in cluster.members.values():
            await member.controller.stop()
        for broker_id in (3, 2, 1):
            await cluster.members.pop(broker_id).store.lose()
        for broker_id in (3, 2, 1):
            await cluster.add(broker_id, stand=False)
        await cluster.members[2].controller.start()
        await cluster.check_agreement()
        for partition in cluster.controller.state.topics["t"].partitions:
            assert (partition.leader, partition.isr) == (partition.replicas[0], partition.replicas)
            assert partition.leader_epoch == 1

    live(story)


def test_a_broker_that_cannot_be_reached_is_told_when_it_can_and_delays_nobody() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.members[3].told.reachable = False
        controller = cluster.controller
        creating = asyncio.ensure_future(cluster.create(assignment={0: [1, 2]}))
        await creating
        assert T0 in cluster.members[2].told.leaders
        assert T0 not in cluster.members[3].told.leaders
        cluster.members[3].told.reachable = True
        await controller.idle()
        assert T0 in cluster.members[3].told.leaders

    live(story)


def test_a_slow_broker_is_told_the_newest_state_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [1, 2, 3]})
        slow = cluster.members[3].told
        slow.answering.clear()
        slow.requests.clear()
        for isr in ((1, 2), (1, 2, 3), (1, 2), (1,), (1, 2), (1, 2, 3), (1, 3)):
            assert await cluster.grow_isr("t", 0, *isr) is ErrorCode.NONE
            await until(lambda: bool(cluster.members[2].told.leaders))
        slow.answering.set()
        await cluster.settled()
        told = [request for request in slow.requests if isinstance(request, UpdateMetadataRequest)]
        assert len(told) == 2
        assert told[-1].topic_states[0].partition_states[0].isr == [1, 3]

    live(story)


def test_leaders_go_home_when_too_many_are_elsewhere() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=6, factor=3)
        await cluster.kill(2)
        await cluster.add(2)
        await cluster.settled()
        for number, partition in enumerate(cluster.controller.state.topics["t"].partitions):
            assert (
                await cluster.grow_isr("t", number, partition.leader, *({1, 2, 3} - {partition.leader}))
                is ErrorCode.NONE
            )
        power = cluster.controller._power
        assert power is not None
        power.reign.post(power.reign.balance)
        await cluster.check_agreement()
        partitions = cluster.controller.state.topics["t"].partitions
        assert [each.leader for each in partitions] == [each.replicas[0] for each in partitions]

    live(story)


def test_leaders_are_elected_on_demand() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 1], 1: [3, 1], 2: [1, 2]})
        await cluster.kill(2)
        await cluster.add(2)
        await cluster.settled()
        assert await cluster.grow_isr("t", 0, 1, 2) is ErrorCode.NONE
        controller = cluster.controller
        wanted = [T0, TopicPartition("t", 1), TopicPartition("t", 9)]
        assert await controller.elect_leaders(0, wanted) == {
            T0: ErrorCode.NONE,
            TopicPartition("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            TopicPartition("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert of(cluster).leader == 2
        assert await controller.elect_leaders(0, None) == {}
        assert await controller.elect_leaders(1, [T0]) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
        with pytest.raises(BrokerError) as refused:
            await controller.elect_leaders(2, None)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        await cluster.check_agreement()

    live(story)


def test_kafkas_tools_ask_for_preferred_leaders_by_a_node() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: [2, 1]})
        await cluster.kill(2)
        await cluster.add(2)
        await cluster.settled()
        assert await cluster.grow_isr("t", 0, 1, 2) is ErrorCode.NONE
        for data in (b'{"version":1,"partitions":[{"topic":"t","partition":0}]}', b"nonsense"):
            await cluster.admin.create(paths.PREFERRED_REPLICA_ELECTION, data)
            await cluster.check_agreement()
            assert await cluster.admin.exists(paths.PREFERRED_REPLICA_ELECTION) is None
        assert of(cluster).leader == 2

    live(story)


def test_replicas_in_observer_racks_follow_but_are_not_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        for broker_id, rack in ((1, "east"), (2, "east"), (3, "west")):
            await cluster.add(broker_id, rack=rack)
        await cluster.settled()
        await cluster.create(partitions=4, factor=3, tidelog_observer_racks="west")
        for partition in cluster.controller.state.topics["t"].partitions:
            assert partition.replicas[2] == 3
            assert partition.observers == (3,)
            assert set(partition.isr) == {1, 2}
        assert await cluster.grow_isr("t", 0, 1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA
        await cluster.kill(3)
        await cluster.kill(2)
        await cluster.add(3, rack="west")
        await cluster.kill(1)
        await cluster.check_agreement()
        assert all(each.leader == NO_LEADER for each in cluster.controller.state.topics["t"].partitions)

    live(story, brokers=0)


def test_a_topic_gets_observers_by_its_settings() -> None:
    async def story(cluster: Cluster) -> None:
        for broker_id, rack in ((1, "west"), (2, "east")):
            await cluster.add(broker_id, rack=rack)
        await cluster.settled()
        await cluster.create(assignment={0: [1, 2]})
        cluster.members[1].settings.learned("t", {"tidelog.observer.racks": "west"})
        await cluster.check_agreement()
        assert (of(cluster).leader, of(cluster).isr, of(cluster).observers) == (2, (2,), (1,))

    live(story, brokers=0)


def test_a_controller_that_stops_hands_over_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1].controller
        await first.stop()
        controller = await cluster.settled()
        assert controller is not first
        assert controller.epoch == 2
        with pytest.raises(MultiError):
            await cluster.admin.multi([Create(paths.CONTROLLER)])

    live(story)
