"""Whatever happens to a cluster: when it settles, what is stored, what is known and what brokers were told agree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster_double import Cluster, live, until, until_idle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.controller.image import NO_LEADER
from tidelog.controller.topic_rules import TopicSpec
from tidelog.errors import BrokerError
from tidelog.types import TopicPartition
from tidelog.znodes import paths
from tidelog.znodes.store import SessionState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Step = tuple[str, int, int]


class Turmoil:
    """Does one thing after another to a cluster of brokers 1 to 4, and waits for none of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.asking: list[asyncio.Future[None]] = []
        self.epochs: dict[tuple[bytes, int], int] = {}

    def ask(self, question: Callable[[Cluster], Awaitable[object]]) -> None:
        """Asks whoever reigns, if anybody does; a refusal is an answer."""

        async def asked() -> None:
            if len(self.cluster.reigning()) == 1:
                try:
                    await question(self.cluster)
                except (BrokerError, LookupError):
                    return

        self.asking.append(asyncio.ensure_future(asked()))

    async def kill(self, broker_id: int, _: int) -> None:
        if broker_id in self.cluster.members and len(self.cluster.members) > 1:
            await self.cluster.kill(broker_id)

    async def add(self, broker_id: int, _: int) -> None:
        if broker_id not in self.cluster.members:
            member = await self.cluster.add(broker_id, stand=False)
            self.asking.append(asyncio.ensure_future(member.controller.start()))

    async def bounce(self, broker_id: int, _: int) -> None:
        member = self.cluster.members.get(broker_id)
        if member is not None and member.store.state is SessionState.CONNECTED:
            await member.bounce()

    async def waver(self, broker_id: int, turns: int) -> None:
        member = self.cluster.members.get(broker_id)
        if member is not None:
            member.store.suspend()
            for _ in range(turns):
                await asyncio.sleep(0)
            member.store.resume()

    async def lose(self, broker_id: int, turns: int) -> None:
        member = self.cluster.members.get(broker_id)
        if member is not None:
            await member.store.lose()
            for _ in range(turns):
                await asyncio.sleep(0)
            await member.store.reconnect()
            await member.register()

    async def create(self, _: int, number: int) -> None:
        spec = TopicSpec(f"t{number % 3}", 3, 1 + number % 3, {}, {})
        self.ask(lambda cluster: cluster.controller.create(spec))

    async def delete(self, _: int, number: int) -> None:
        self.ask(lambda cluster: cluster.controller.delete(f"t{number % 3}"))

    async def mark(self, _: int, number: int) -> None:
        if not await self.cluster.admin.exists(paths.delete_topic(f"t{number % 3}")):
            await self.cluster.admin.create(paths.delete_topic(f"t{number % 3}"))

    async def move(self, broker_id: int, number: int) -> None:
        target = [broker_id, 1 + broker_id % 4][: 1 + number % 2]
        wanted = {TopicPartition(f"t{number % 3}", each): target for each in range(3)}
        self.ask(lambda cluster: cluster.controller.alter_reassignments(wanted))

    async def cancel(self, _: int, number: int) -> None:
        wanted = {TopicPartition(f"t{number % 3}", each): None for each in range(3)}
        self.ask(lambda cluster: cluster.controller.alter_reassignments(wanted))

    async def stop(self, broker_id: int, _: int) -> None:
        async def question(cluster: Cluster) -> None:
            await cluster.controller.controlled_shutdown(broker_id, cluster.members[broker_id].told.epoch)

        self.ask(question)

    async def catch_up(self, _: int, number: int) -> None:
        async def question(cluster: Cluster) -> None:
            for at, partition in enumerate(list(cluster.controller.state.topics[f"t{number % 3}"].partitions)):
                if partition.leader != NO_LEADER:
                    alive = [each for each in partition.replicas if each in cluster.members]
                    await cluster.ask_isr(f"t{number % 3}", at, partition, *alive)

        self.ask(question)

    async def mute(self, broker_id: int, _: int) -> None:
        member = self.cluster.members.get(broker_id)
        if member is not None:
            member.told.answering.clear()

    async def unmute(self, broker_id: int, _: int) -> None:
        member = self.cluster.members.get(broker_id)
        if member is not None:
            member.told.answering.set()

    def note_epochs(self) -> None:
        """Leader epochs never fall."""
        for member in self.cluster.members.values():
            for topic in member.controller.state.topics.values():
                for number, partition in enumerate(topic.partitions):
                    key = (topic.topic_id, number)
                    assert partition.leader_epoch >= self.epochs.get(key, 0)
                    self.epochs[key] = partition.leader_epoch

    async def settle(self) -> None:
        for member in self.cluster.members.values():
            member.told.answering.set()
        # What a timer does after a failure, without the wait.
        for _ in range(3):
            for member in self.cluster.members.values():
                await until_idle(member.controller)
                if member.controller._retry is not None:
                    member.controller._retry.cancel()
                    member.controller._try_again()
        await until(lambda: len(self.cluster.reigning()) == 1)
        for broker_id in range(1, 5):
            await self.add(broker_id, 0)
        await until_idle(await self.cluster.settled())
        await asyncio.gather(*self.asking)


STEPS = [
    "kill", "add", "bounce", "waver", "lose", "create", "create", "delete", "mark", "move", "cancel", "stop",
    "catch_up", "catch_up", "mute", "unmute",
]  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(1, 4), st.integers(0, 12)),
        min_size=1,
        max_size=25,
    )
)
def test_everything_agrees_in_the_end(steps: list[Step]) -> None:
    async def story(cluster: Cluster) -> None:
        turmoil = Turmoil(cluster)
        for name, broker_id, number in steps:
            await getattr(turmoil, name)(broker_id, number)
            for _ in range(number):
                await asyncio.sleep(0)
            turmoil.note_epochs()
        await turmoil.settle()
        turmoil.note_epochs()
        await cluster.check_agreement()
        for topic in cluster.controller.state.topics.values():
            for partition in topic.partitions:
                assert partition.leader in cluster.members
                assert partition.leader in partition.isr
                assert set(partition.isr) <= set(partition.replicas)

    live(story, brokers=4)
