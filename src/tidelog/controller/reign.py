"""One reign of a controller: what it knows, and the way of every change.

Decide (pure) -> write behind the fence -> take up in `state` -> tell the brokers. The methods run one at a time, from
the controller's queue. A reign is over when the controllership is lost or in doubt: nothing is written, taken up or
told then, and the next reign reads everything anew, be it on this broker or on another.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller.couriers import Couriers
from tidelog.controller.dispatch import Seal, tell_changes
from tidelog.controller.image import ClusterImage
from tidelog.controller.ledger import Deposed, Ledger
from tidelog.controller.loading import existing, load_brokers, load_topics
from tidelog.controller.observers import observers_among
from tidelog.controller.transitions import (
    NOBODY,
    PartitionChange,
    fresh_partition,
    move_away,
    out_of_balance,
    prefer,
    reobserve,
    settle,
    still_led_by,
    without,
)
from tidelog.errors import BrokerError, ErrorCode
from tidelog.znodes import paths
from tidelog.znodes.store import Create

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.controller.claim import Claim
    from tidelog.controller.couriers import Answers, Send
    from tidelog.controller.dispatch import Outboxes
    from tidelog.controller.image import BrokerIds, BrokerImage, TopicImage
    from tidelog.controller.ledger import Unit
    from tidelog.controller.loading import LoadedTopics
    from tidelog.controller.settings import Settings
    from tidelog.types import TopicPartition
    from tidelog.znodes.store import WatchEvent, ZnodeStore

    Post = Callable[[Callable[[], Awaitable[None]]], None]

logger = logging.getLogger(__name__)

OBSERVER_RACKS = "tidelog.observer.racks"


class Reign:
    def __init__(
        self,
        claimed: Claim,
        broker_id: int,
        cluster_id: str,
        znodes: ZnodeStore,
        settings: Settings,
        send: Send,
        post: Post,
    ) -> None:
        """`post` puts something to do into the controller's queue."""
        self.epoch = claimed.epoch
        self.znodes = znodes
        self.settings = settings
        self.state = ClusterImage(cluster_id, broker_id)
        self.shutting_down: set[int] = set()
        self.over = False
        self.post = post
        self.ledger = Ledger(znodes, claimed, settings.broker.zookeeper_max_in_flight_requests)
        seal = Seal(broker_id, claimed.epoch, settings.broker.endpoints.inter_broker_name)
        self.couriers = Couriers(send, self.state, seal, self._stopped, self._contradicted, self._answered)
        self.on_stopped: Callable[[int, list[TopicPartition]], None] = lambda _broker, _partitions: None
        self.on_brokers_changed: Callable[[Iterable[int]], None] = lambda _came: None
        self._brokers_posted = False

    @property
    def outboxes(self) -> Outboxes:
        return self.couriers.outboxes

    def end(self) -> None:
        self.over = True
        self.couriers.close_all()

    def check(self) -> None:
        """To be called after every wait, before anything is done."""
        if self.over:
            raise Deposed

    def config(self, topic: TopicImage) -> TopicConfig:
        return self.settings.topic_config(topic.settings)

    def unclean(self, topic: TopicImage) -> bool:
        return self.config(topic).unclean_leader_election_enable

    def racks(self) -> dict[int, str | None]:
        return {broker.broker_id: broker.rack for broker in self.state.brokers.values()}

    def observers_of(self, topic: TopicImage, replicas: Sequence[int]) -> tuple[int, ...]:
        if OBSERVER_RACKS not in topic.settings:
            return ()
        return observers_among(replicas, self.racks(), self.config(topic).tidelog_observer_racks)

    async def commit(
        self, changes: Sequence[PartitionChange], *, more: Iterable[Unit] = (), metadata_only: bool = False
    ) -> None:
        """Writes changes of partitions that are there, takes them up, and tells."""
        units = [*more, *self.ledger.changes(changes, self.state.topics)]
        if units:
            await self.ledger.write(units)
            self.check()
        self.take_up(changes, metadata_only=metadata_only)

    async def commit_leaders_first(self, changes: Sequence[PartitionChange]) -> None:
        """Clients wait for partitions without a leader; who else is in sync can follow."""
        await self.commit([change for change in changes if change.moves_leader])
        await self.commit([change for change in changes if not change.moves_leader])

    def take_up(self, changes: Sequence[PartitionChange], *, metadata_only: bool = False) -> None:
        for change in changes:
            name, number = change.topic_partition
            partitions = self.state.topics[name].partitions
            if number == len(partitions):
                partitions.append(change.partition)
            else:
                partitions[number] = change.partition
        self.state.touch()
        stored = [
            change
            for change in changes
            if change.before is None or change.before.partition_epoch != change.partition.partition_epoch
        ]
        tell_changes(self.outboxes, stored, metadata_only=metadata_only)
        self.couriers.wake()

    async def load(self) -> LoadedTopics:
        """Reads the cluster. What is read is not older than the claim, whichever server of an ensemble answers."""
        await self.ledger.confirm()
        self.state.brokers = await load_brokers(self.znodes, self._on_brokers)
        loaded = await load_topics(self.znodes, self.state.brokers)
        self.check()
        for topic in loaded.topics:
            self.state.put_topic(topic)
        return loaded

    async def begin(self, loaded: LoadedTopics) -> None:
        """Finishes what an earlier controller left undone, and tells all brokers everything."""
        await self._bear(loaded)
        for topic in self.state.topics.values():
            await self.observe(topic)
        changes = settle(self.state, self.shutting_down, self.unclean, doubtful=self._were_away(loaded))
        leaders = [change for change in changes if change.moves_leader]
        await self.commit(leaders)
        for broker in self.state.brokers.values():
            self.couriers.open(broker)
        self.couriers.wake()
        await self.commit([change for change in changes if not change.moves_leader])

    def _were_away(self, loaded: LoadedTopics) -> Callable[[TopicPartition], BrokerIds]:
        """A broker that registered after a partition last changed may have been away without any controller seeing it:
        its return would have changed the partition."""
        epochs = {broker.broker_id: broker.epoch for broker in self.state.brokers.values()}
        newest = max(epochs.values(), default=0)

        def away(topic_partition: TopicPartition) -> BrokerIds:
            changed_at = loaded.changed_at.get(topic_partition, newest)
            if changed_at >= newest:
                return NOBODY
            return {broker_id for broker_id, epoch in epochs.items() if epoch > changed_at}

        return away

    async def _bear(self, loaded: LoadedTopics) -> None:
        unborn = [each for each in loaded.unborn if each.topic in self.state.topics]
        if not unborn:
            return
        logger.info("finishing the creation of %d partitions", len(unborn))
        wanted = {paths.partition(*each) for each in unborn} | {paths.partitions(each.topic) for each in unborn}
        there = set(await existing(self.znodes, sorted(wanted)))
        units: list[Unit] = []
        for topic_partition in unborn:
            topic = self.state.topics[topic_partition.topic]
            placed = topic.partitions[topic_partition.partition].replicas
            partition = fresh_partition(placed, self.state.brokers.keys(), self.observers_of(topic, placed))
            topic.partitions[topic_partition.partition] = partition
            unit = self.ledger.birth(topic_partition, partition)
            if paths.partition(*topic_partition) in there:
                del unit[0]
            parent = paths.partitions(topic_partition.topic)
            if parent not in there:
                there.add(parent)
                await self.ledger.write([[Create(parent)]])
            units.append(unit)
        await self.ledger.write(units)
        self.check()

    async def observe(self, topic: TopicImage) -> None:
        """Takes up which replicas are observers, after brokers came or the topic's settings changed."""
        racks = self.config(topic).tidelog_observer_racks if OBSERVER_RACKS in topic.settings else ()
        if racks or any(partition.observers for partition in topic.partitions):
            await self.commit(reobserve(self.state, topic, racks, self.shutting_down))

    def _on_brokers(self, _event: WatchEvent) -> None:
        if not self._brokers_posted:
            self._brokers_posted = True
            self.post(self.brokers_changed)

    async def brokers_changed(self) -> None:
        self._brokers_posted = False
        brokers = await load_brokers(self.znodes, self._on_brokers)
        self.check()
        former = self.state.brokers
        gone = former.keys() - brokers.keys()
        came = brokers.keys() - former.keys()
        bounced = {each for each in brokers.keys() & former.keys() if brokers[each].epoch != former[each].epoch}
        if brokers == former:
            return
        logger.info("brokers gone: %s, come: %s, come back: %s", sorted(gone), sorted(came), sorted(bounced))
        self.state.brokers = brokers
        failed = self.state.offline
        self.state.offline = without(failed, gone | bounced)  # who comes back has looked at its disks
        self.state.touch()
        self.shutting_down -= gone | bounced
        self.couriers.close(gone | bounced)
        for outbox in self.outboxes.values():
            outbox.brokers = True
            outbox.metadata |= dict.fromkeys(failed)
        if came or bounced:
            for topic in self.state.topics.values():
                await self.observe(topic)
        changes = settle(self.state, self.shutting_down, self.unclean, doubtful=lambda _: bounced)
        await self.commit([change for change in changes if change.moves_leader])
        self._welcome(brokers[each] for each in sorted(came | bounced))
        await self.commit([change for change in changes if not change.moves_leader])
        self.on_brokers_changed(came | bounced)

    def _welcome(self, brokers: Iterable[BrokerImage]) -> None:
        for broker in brokers:
            self.couriers.open(broker)
        self.couriers.wake()

    async def topic_settings_changed(self, name: str, settings: dict[str, str]) -> None:
        topic = self.state.topics.get(name)
        if topic is None or topic.settings == settings:
            return
        topic.settings = settings
        await self.observe(topic)
        await self.commit_leaders_first(settle(self.state, self.shutting_down, self.unclean, topics=[topic]))

    async def settle(self) -> None:
        """Gives a leader to every partition that can have one."""
        await self.commit_leaders_first(settle(self.state, self.shutting_down, self.unclean))

    def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Refuses a broker that is not registered, or speaks from an earlier life."""
        broker = self.state.brokers.get(broker_id)
        if broker is None or broker_epoch < broker.epoch:
            raise BrokerError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered with epoch {broker_epoch}"
            )

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        if broker_id not in self.state.brokers:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        self.check_broker(broker_id, broker_epoch)
        self.shutting_down.add(broker_id)
        await self.commit_leaders_first(move_away(self.state, broker_id, self.shutting_down))
        return still_led_by(self.state, broker_id)

    async def elect_preferred(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        changes, outcome = prefer(self.state, self.shutting_down, wanted)
        await self.commit(changes)
        return outcome

    async def balance(self) -> None:
        broker = self.settings.broker
        wanted = out_of_balance(self.state, broker.leader_imbalance_per_broker_percentage)
        outcome = await self.elect_preferred(wanted)
        moved = sum(code is ErrorCode.NONE for code in outcome.values())
        if moved:
            logger.info("gave %d partitions back to their preferred leaders", moved)

    def _stopped(self, broker_id: int, partitions: list[TopicPartition]) -> None:
        self.on_stopped(broker_id, partitions)

    def _answered(self, broker: BrokerImage, answers: Answers) -> None:
        failed = {each for each, code in answers.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
        known = {each for each in answers if broker.broker_id in self.state.offline.get(each, NOBODY)}
        if failed != known:
            self.post(lambda: self._replicas_changed(broker, failed - known, known - failed))

    async def _replicas_changed(
        self, broker: BrokerImage, failed: set[TopicPartition], mended: set[TopicPartition]
    ) -> None:
        """A broker cannot use some of its replicas, or can again: others lead what it led of them."""
        now = self.state.brokers.get(broker.broker_id)
        if now is None or now.epoch != broker.epoch:
            return
        changed = {each for each in failed | mended if each.topic in self.state.topics}
        offline = self.state.offline
        for each in changed:
            brokers = offline.get(each, frozenset()) - {broker.broker_id}
            if each in failed:
                brokers |= {broker.broker_id}
            if brokers:
                offline[each] = brokers
            else:
                offline.pop(each, None)
        if failed:
            logger.error("broker %d has lost the use of %d replicas", broker.broker_id, len(failed))
        for outbox in self.outboxes.values():
            outbox.metadata |= dict.fromkeys(changed)
        topics = [self.state.topics[name] for name in sorted({each.topic for each in changed})]
        await self.commit_leaders_first(settle(self.state, self.shutting_down, self.unclean, topics=topics))

    def _contradicted(self) -> None:
        """A broker knows a newer controller: look whether this one still is."""
        self.post(self._confirm)

    async def _confirm(self) -> None:
        await self.ledger.confirm()
