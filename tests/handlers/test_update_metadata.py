"""UpdateMetadata: the broker's image of the cluster follows what the controller tells."""

from __future__ import annotations

import pytest
from handler_cases import LISTENER, Around, around
from replica_cases import ORDERS_ID, A, B, C

from tidelog.controller.image import Endpoint, PartitionImage
from tidelog.errors import ErrorCode
from tidelog.handlers.update_metadata import HANDLER
from tidelog.types import TopicId
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

INCREMENTAL, FULL = 1, 2
OTHER_ID = TopicId(b"another topic id")


def state(leader: int = B, epoch: int = 1, partition: int = 0) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=partition,
        controller_epoch=5,
        leader=leader,
        leader_epoch=epoch,
        isr=[B, C],
        zk_version=epoch + 10,
        replicas=[A, B, C],
    )


def topic(
    *states: UpdateMetadataPartitionState, name: str = "orders", topic_id: TopicId = ORDERS_ID
) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=list(states))


def request(*topics: UpdateMetadataTopicState, kind: int = INCREMENTAL, epoch: int = 5) -> UpdateMetadataRequest:
    broker = UpdateMetadataBroker(
        id=B,
        endpoints=[UpdateMetadataEndpoint(port=9, host="new-host", listener=LISTENER, security_protocol=0)],
        rack="east",
    )
    return UpdateMetadataRequest(
        controller_id=B,
        controller_epoch=epoch,
        broker_epoch=-1,
        type=kind,
        topic_states=list(topics),
        live_brokers=[broker],
    )


def test_brokers_topics_and_the_controller_are_taken_over() -> None:
    async def story(broker: Around) -> None:
        await broker.put_settings("orders", retention_ms="1000")
        version = broker.image.version
        reply = await broker.answer(HANDLER, request(topic(state(), state(C, partition=1))))
        assert reply.error_code == 0
        image = broker.image
        assert image.controller_id == B
        assert list(image.brokers) == [B]
        assert (image.brokers[B].endpoints, image.brokers[B].rack) == ({LISTENER: Endpoint("new-host", 9)}, "east")
        known = image.topic("orders")
        assert known.topic_id == ORDERS_ID
        assert known.settings == {"retention.ms": "1000"}
        assert known.partitions == [
            PartitionImage((A, B, C), (B, C), leader, 1, partition_epoch=11) for leader in (B, C)
        ]
        assert image.topic_by_id(ORDERS_ID) is known
        assert image.version > version
        assert broker.gone == [()]

    around(story)


def test_partitions_that_were_not_told_yet_have_no_leader() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(topic(state(partition=2))))
        assert [each.leader for each in broker.image.topic("orders").partitions] == [-1, -1, B]
        await broker.answer(HANDLER, request(topic(state(C, 2, partition=0))))
        assert [each.leader for each in broker.image.topic("orders").partitions] == [C, -1, B]

    around(story)


def test_a_deleted_topic_is_forgotten_and_told_of() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(topic(state())))
        await broker.answer(HANDLER, request(topic(state(leader=-2, epoch=-2))))
        assert "orders" not in broker.image.topics
        assert broker.gone[-1] == ("orders",)

    around(story)


def test_a_topic_created_again_in_the_same_request_replaces_the_deleted_one() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(topic(state(), state(partition=1))))
        await broker.answer(HANDLER, request(topic(state(leader=-2, epoch=-2)), topic(state(C), topic_id=OTHER_ID)))
        assert broker.image.topic("orders").topic_id == OTHER_ID
        assert len(broker.image.topic("orders").partitions) == 1
        assert broker.gone[-1] == ("orders",)

    around(story)


def test_the_deletion_of_an_earlier_topic_does_not_touch_the_new_one_of_its_name() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(topic(state(), topic_id=OTHER_ID)))
        await broker.answer(HANDLER, request(topic(state(leader=-2, epoch=-2))))
        assert broker.image.topic("orders").topic_id == OTHER_ID

    around(story)


def test_another_topic_of_the_same_name_takes_its_place() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(topic(state(), state(partition=1))))
        await broker.answer(HANDLER, request(topic(state(C), topic_id=OTHER_ID)))
        assert len(broker.image.topic("orders").partitions) == 1
        assert broker.gone[-1] == ("orders",)
        assert ORDERS_ID not in broker.image.names

    around(story)


def test_a_full_request_drops_what_it_does_not_name() -> None:
    async def story(broker: Around) -> None:
        await broker.answer(HANDLER, request(topic(state()), topic(state(), name="other", topic_id=OTHER_ID)))
        await broker.answer(HANDLER, request(topic(state(C, 2)), kind=FULL))
        assert list(broker.image.topics) == ["orders"]
        assert broker.gone[-1] == ("other",)

    around(story)


@pytest.mark.parametrize(
    ("peer", "epoch", "code"),
    [(None, 6, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (B, 4, ErrorCode.STALE_CONTROLLER_EPOCH)],
)
def test_only_the_controller_of_the_day_is_believed(peer: int | None, epoch: int, code: ErrorCode) -> None:
    async def story(broker: Around) -> None:
        broker.services.fencing.controller_epoch = 5
        assert await broker.refusal(HANDLER, request(topic(state()), epoch=epoch), peer) is code
        assert not broker.image.topics

    around(story)
