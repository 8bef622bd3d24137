"""LeaderAndIsr: roles are taken, from the controller of the day only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handler_cases import Around, around
from replica_cases import NOW_MS, ORDERS, ORDERS_ID, A, B, C, role

from tidelog.controller.image import PartitionImage
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.leader_and_isr import HANDLER
from tidelog.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

INCREMENTAL, FULL = 1, 2
OTHER_ID = TopicId(b"another topic id")


def state(
    leader: int = A, epoch: int = 1, *, partition: int = 0, replicas: tuple[int, ...] = (A, B, C)
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=list(replicas),
        partition_epoch=epoch,
        replicas=list(replicas),
    )


def request(
    *states: LeaderAndIsrPartitionState, controller_epoch: int = 5, broker_epoch: int = 11, kind: int = INCREMENTAL
) -> LeaderAndIsrRequest:
    topic = LeaderAndIsrTopicState(topic_name="orders", topic_id=ORDERS_ID, partition_states=list(states))
    return LeaderAndIsrRequest(
        controller_id=B,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        type=kind,
        topic_states=[topic] if states else [],
        live_leaders=[],
    )


def test_roles_are_taken_and_answered_one_by_one() -> None:
    async def story(broker: Around) -> None:
        reply = await broker.answer(
            HANDLER, request(state(A), state(B, partition=1), state(B, partition=2, replicas=(B, C)))
        )
        (topic,) = reply.topics
        assert topic.topic_id == ORDERS_ID
        assert [(each.partition_index, each.error_code) for each in topic.partition_errors] == [
            (0, 0),
            (1, 0),
            (2, ErrorCode.INVALID_REQUEST),
        ]
        assert broker.node.partition().leads
        assert broker.node.partition(TopicPartition("orders", 1)).follows
        assert broker.node.partition().isr == (A, B, C)

    around(story)


def test_many_roles_are_taken_leaders_first() -> None:
    async def story(broker: Around) -> None:
        taken: list[int] = []

        class Watcher:
            def leads(self, partition: Partition) -> None:
                assert partition.leads
                taken.append(len(list(broker.node.replicas)))

            def loses(self, partition: Partition) -> None:
                raise AssertionError(partition)

        broker.node.replicas.watchers["orders"] = Watcher()
        states = [state(A if number % 10 == 9 else B, partition=number) for number in range(120)]
        await broker.answer(HANDLER, request(*states))
        assert taken == list(range(1, 13))

    around(story)


def test_an_older_role_changes_nothing_and_is_no_error() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(state(A, 5)))
        reply = await broker.answer(HANDLER, request(state(B, 4)))
        assert reply.topics[0].partition_errors[0].error_code == 0
        assert broker.node.partition().leads

    around(story)


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "peer", "code"),
    [
        (4, 11, B, ErrorCode.STALE_CONTROLLER_EPOCH),
        (6, 10, B, ErrorCode.STALE_BROKER_EPOCH),
        (6, 11, C, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (6, 11, None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (6, 12, B, ErrorCode.NONE),
        (6, -1, B, ErrorCode.NONE),
    ],
    ids=["old controller", "earlier life", "another broker", "a client", "a life to come", "says no epoch"],
)
def test_only_the_controller_of_the_day_is_obeyed(
    controller_epoch: int, broker_epoch: int, peer: int | None, code: ErrorCode
) -> None:
    async def story(broker: Around) -> None:
        broker.services.fencing.broker_epoch = 11
        await broker.answer(HANDLER, request(state(A, 1)))
        new = request(state(B, 2), controller_epoch=controller_epoch, broker_epoch=broker_epoch)
        assert await broker.refusal(HANDLER, new, peer) is code
        assert broker.node.partition().leads is (code is not ErrorCode.NONE)

    around(story)


def test_a_controller_that_was_deposed_while_settings_were_read_is_not_obeyed() -> None:
    async def story(broker: Around) -> None:
        broker.services.fencing.controller_epoch = 5
        asked = broker.ask(HANDLER, request(state(A)), 7)
        broker.services.fencing.controller_epoch = 5
        learn = broker.settings.learn

        async def learn_slowly(names: object) -> None:
            await learn(names)  # type: ignore[arg-type]
            broker.services.fencing.check(6, -1)

        broker.settings.learn = learn_slowly  # type: ignore[method-assign]
        with pytest.raises(Exception, match="controller of epoch 6"):
            await asked  # type: ignore[misc]
        assert not list(broker.node.replicas)

    around(story)


def test_a_new_topics_settings_are_read_before_its_log_is_made() -> None:
    async def story(broker: Around) -> None:
        await broker.put_settings("orders", min_insync_replicas="2")
        await broker.answer(HANDLER, request(state(A)))
        assert broker.node.log.config.min_insync_replicas == 2

    around(story)


def test_without_settings_roles_are_taken_all_the_same() -> None:
    async def story(broker: Around) -> None:
        await broker.znodes.close()
        reply = await broker.answer(HANDLER, request(state(A)))
        assert reply.topics[0].partition_errors[0].error_code == 0
        assert broker.node.partition().leads

    around(story)


ELSEWHERE = PartitionImage((B, C), (B, C), B, 3)


@pytest.mark.parametrize(
    ("topic_id", "partition", "kind", "stays"),
    [
        (ORDERS_ID, ELSEWHERE, FULL, False),
        (ORDERS_ID, ELSEWHERE, INCREMENTAL, True),
        (OTHER_ID, ELSEWHERE, FULL, False),
        (ORDERS_ID, PartitionImage((A, B), (A, B), B, 3), FULL, True),
        (ORDERS_ID, PartitionImage((), (), -1, -1), FULL, True),
        (None, ELSEWHERE, FULL, True),
    ],
    ids=["moved away", "not all is told", "another topic", "still here", "not told where", "unknown topic"],
)
def test_a_log_goes_only_if_it_is_certain_what_became_of_its_partition(
    topic_id: TopicId | None, partition: PartitionImage, kind: int, stays: bool
) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1))
        broker.node.append(b"x", all_replicas=False)
        broker.node.store.write_checkpoints()
        broker.node.crash()
        broker.services.replicas = broker.node.replicas
        if topic_id is not None:
            broker.put_topic("orders", topic_id, partition, partition)
        await broker.answer(HANDLER, request(kind=kind))
        assert (ORDERS in broker.node.store.logs) is stays
        kept = [each.name for each in broker.node.fs.scan("/data") if each.name.endswith("-stray")]
        assert len(kept) == (0 if stays else 1)

    around(story)


def test_a_log_that_does_not_say_whose_it_is_stays() -> None:
    async def story(broker: Around) -> None:
        broker.node.store.create(ORDERS, ZERO_TOPIC_ID, broker.node.config)
        broker.put_topic("orders", ORDERS_ID, ELSEWHERE)
        await broker.answer(HANDLER, request(kind=FULL))
        assert ORDERS in broker.node.store.logs

    around(story)


def test_a_stray_log_that_the_disk_will_not_let_go_stays() -> None:
    async def story(broker: Around) -> None:
        broker.node.store.create(ORDERS, ORDERS_ID, broker.node.config)
        broker.put_topic("orders", ORDERS_ID, ELSEWHERE)
        broker.node.fs.fail("rename", 5)
        reply = await broker.answer(HANDLER, request(kind=FULL))
        assert reply.error_code == 0
        assert ORDERS in broker.node.store.logs

    around(story)


def test_a_full_request_stops_what_it_does_not_name_and_keeps_its_log() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(state(A), state(A, partition=1)))
        broker.node.append(b"x", all_replicas=False)
        await broker.answer(HANDLER, request(state(A, partition=1), kind=FULL))
        assert [partition.topic_partition.partition for partition in broker.node.replicas] == [1]
        assert broker.node.store.logs[ORDERS].log_end_offset == 1

    around(story)


@pytest.mark.parametrize("leader", [A, B, -1])
def test_a_log_that_has_failed_takes_no_role_and_leaves_the_partition_to_others(leader: int) -> None:
    async def story(broker: Around) -> None:
        lost: list[TopicPartition] = []

        class Watcher:
            def leads(self, partition: Partition) -> None:
                pass

            def loses(self, partition: Partition) -> None:
                lost.append(partition.topic_partition)

        broker.node.replicas.watchers["orders"] = Watcher()
        await broker.answer(HANDLER, request(state(A)))
        failures: list[TopicPartition] = []
        broker.node.store.on_failure = failures.append
        broker.node.append(b"x", all_replicas=False)
        broker.node.fs.fail("sync", 5)
        with pytest.raises(BrokerError):
            broker.node.log.flush()
        assert failures == [ORDERS]
        for epoch in (2, 2, 3):
            reply = await broker.answer(HANDLER, request(state(leader, epoch)))
            assert reply.topics[0].partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.node.partition().leads is (leader == A)
        assert lost == ([] if leader == A else [ORDERS])

    around(story)


def test_a_disk_that_refuses_to_let_an_earlier_topic_go_is_an_error_of_that_partition() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(state(A)))
        recreated = request(state(A))
        recreated.topic_states[0].topic_id = b"another topic id"
        broker.node.fs.fail("rename", 5)
        reply = await broker.answer(HANDLER, recreated)
        assert reply.topics[0].partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    around(story)


def test_a_log_that_cannot_be_made_is_an_error_of_that_partition() -> None:
    async def story(broker: Around) -> None:
        broker.node.fs.fail("make_dir", 28)
        reply = await broker.answer(HANDLER, request(state(A), state(A, partition=1)))
        codes = [each.error_code for each in reply.topics[0].partition_errors]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert broker.clock.now_ms() == NOW_MS

    around(story)
