"""A controller whose session wavers: suspended it does nothing, connected it goes on, lost it stands again."""

from __future__ import annotations

import asyncio

import pytest
from cluster_double import Cluster, live, until, until_idle

from tidelog.controller.topic_rules import TopicSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.znodes import paths

T0 = TopicPartition("t", 0)


async def refusal(cluster: Cluster, broker_id: int) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        await cluster.members[broker_id].controller.create(TopicSpec("new", 1, 1, {}, {}))
    return refused.value.code


def test_a_suspended_controller_refuses_and_tells_nobody() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1]
        first.store.suspend()
        assert not cluster.reigning()
        assert first.controller.epoch == -1
        assert not first.controller.state.brokers
        assert await refusal(cluster, 1) is ErrorCode.NOT_CONTROLLER
        for member in cluster.members.values():
            member.told.requests.clear()
        await cluster.kill(3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(member.told.requests for member in cluster.members.values())

    live(story)


def test_connected_again_it_goes_on_with_what_it_has_missed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        first = cluster.members[1]
        first.store.suspend()
        await cluster.kill(3)
        await cluster.add(4)
        await cluster.admin.create(paths.delete_topic("t"))
        first.store.resume()
        await until(lambda: cluster.reigning() == {1})
        assert cluster.controller.epoch == 1, "it has reigned all the time"
        await cluster.settled()
        assert cluster.controller.state.brokers.keys() == {1, 2, 4}
        assert not cluster.controller.state.topics
        for member in cluster.members.values():
            assert member.told.peers == {1, 2, 4}
            assert not member.told.leaders

    live(story)


def test_connected_again_when_another_one_reigns_it_follows() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1]
        first.store.suspend()
        await first.store._session.expire()  # the ensemble has given it up; it does not know
        await until(lambda: len(cluster.reigning()) == 1)
        assert cluster.controller.epoch == 2
        await first.store.lose()
        await first.store.reconnect()
        await first.register()
        await cluster.check_agreement()
        assert cluster.reigning() <= {2, 3}
        await until(lambda: first.controller.holder in (2, 3))

    live(story)


def test_a_lost_session_is_followed_by_another_candidacy() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=3, factor=3)
        for broker_id in (2, 3):
            await cluster.members[broker_id].controller.stop()
        first = cluster.members[1]
        await first.store.lose()
        assert not cluster.reigning()
        await first.store.reconnect()
        await first.register()
        await cluster.check_agreement()
        assert cluster.reigning() == {1}
        assert cluster.controller.epoch == 2

    live(story)


def test_a_write_whose_answer_is_lost_is_found_when_it_has_happened() -> None:
    """The caller cannot know either: it is told to ask again, and finds the topic."""

    async def story(cluster: Cluster) -> None:
        store = cluster.members[1].store
        store.lose_answers = True
        assert await refusal(cluster, 1) is ErrorCode.NOT_CONTROLLER
        store.lose_answers = False
        store.suspend()
        store.resume()
        await cluster.check_agreement()
        assert "new" in cluster.controller.state.topics
        assert cluster.controller.epoch == 1

    live(story)


def test_a_claim_whose_answer_is_lost_is_ours_all_the_same() -> None:
    async def story(cluster: Cluster) -> None:
        member = await cluster.add(1, stand=False)
        member.store.lose_answers = True
        await member.controller.start()
        assert not cluster.reigning()
        member.store.lose_answers = False
        member.store.suspend()
        member.store.resume()
        await until(lambda: cluster.reigning() == {1})
        assert cluster.controller.epoch == 1
        await cluster.check_agreement()

    live(story, brokers=0)


def test_what_was_under_way_when_the_session_wavered_is_not_told() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1]
        controller = first.controller
        creating = asyncio.ensure_future(controller.create(TopicSpec("t", 1, 3, {}, {})))
        await asyncio.sleep(0)
        first.store.suspend()
        with pytest.raises(BrokerError) as refused:
            await creating
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert not any(T0 in member.told.leaders for member in cluster.members.values())
        first.store.resume()
        await cluster.check_agreement()

    live(story)


def test_events_of_a_reign_that_is_over_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        first = cluster.members[1]
        waiting = [
            asyncio.ensure_future(first.controller.create(TopicSpec(f"t{number}", 1, 1, {}, {}))) for number in range(5)
        ]
        await asyncio.sleep(0)
        first.store.suspend()
        first.store.resume()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, BrokerError) and each.code is ErrorCode.NOT_CONTROLLER for each in outcomes)
        await cluster.check_agreement()

    live(story)


def test_a_session_that_wavers_while_the_state_is_read_does_no_harm() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=30, factor=3)
        first = cluster.members[1]
        for turns in range(12):
            first.store.suspend()
            first.store.resume()
            for _ in range(turns):
                await asyncio.sleep(0)
        await until_idle(first.controller)
        await cluster.check_agreement()

    live(story)


def test_a_failure_of_our_own_ends_the_reign_and_begins_another() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(partitions=2, factor=2)
        controller = cluster.controller

        async def bug() -> None:
            raise ZeroDivisionError

        controller._queue.post(bug)
        await until(lambda: not controller.is_controller)
        controller._try_again()  # what the timer does a little later
        await cluster.check_agreement()
        assert cluster.controller is controller
        assert controller.epoch == 1

    live(story)
