"""Deletes topics: a topic disappears from all clients at once, its records when the brokers that hold them answer.

The mark under `/admin/delete_topics` is the decision. The topic's nodes stay until every replica is deleted, so that no
topic of the same name comes between; a broker that is away is told when it returns, or is given up when it is
unregistered.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.controller.dispatch import tell_gone, tell_to_delete
from tidelog.controller.ledger import Deposed
from tidelog.controller.loading import children_if_any, existing
from tidelog.znodes import paths
from tidelog.znodes.errors import MultiError, NotEmpty
from tidelog.znodes.store import Create, Delete

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.controller.image import TopicImage
    from tidelog.controller.reign import Reign
    from tidelog.types import TopicPartition
    from tidelog.znodes.store import WatchEvent

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Doomed:
    topic: TopicImage
    waiting: dict[int, set[int]]
    """The partitions that each broker has not deleted yet."""
    settled: list[asyncio.Future[None]] = field(default_factory=list)
    """Those who wait until all that can answer have done so."""


class Deletions:
    def __init__(self, reign: Reign) -> None:
        self.doomed: dict[str, Doomed] = {}
        self._reign = reign
        self._marks_posted = False
        reign.on_stopped = self._stopped

    async def load(self) -> None:
        """Takes topics that are marked out of the image. To be called before brokers are told of any."""
        for name in await self._marks():
            topic = self._reign.state.topics.get(name)
            if topic is not None:
                self._reign.state.drop_topic(name)
                self._doom(topic)
            else:
                self._reign.post(lambda name=name: self._erase(name))  # type: ignore[misc]

    def resume(self, broker_ids: Iterable[int]) -> None:
        """Tells brokers that have come what they still hold of topics that are to go."""
        for doomed in self.doomed.values():
            for broker_id in broker_ids:
                self._tell(doomed, broker_id)
        self._reign.couriers.wake()

    async def delete(self, name: str) -> asyncio.Future[None]:
        """Dooms a topic. What it returns is done when all live brokers have deleted their replicas."""
        topic = self._reign.state.topic(name)
        await self._reign.ledger.write([[Create(paths.delete_topic(name))]])
        self._reign.check()
        return self._begin(topic)

    def _begin(self, topic: TopicImage) -> asyncio.Future[None]:
        reign = self._reign
        reign.state.drop_topic(topic.name)
        doomed = self._doom(topic)
        tell_gone(reign.outboxes, topic)
        for broker_id in list(doomed.waiting):
            self._tell(doomed, broker_id)
        reign.couriers.wake()
        settled = asyncio.get_running_loop().create_future()
        doomed.settled.append(settled)
        self._look_at(doomed)
        logger.info("topic %s is being deleted", topic.name)
        return settled

    def _doom(self, topic: TopicImage) -> Doomed:
        waiting: dict[int, set[int]] = {}
        for number, partition in enumerate(topic.partitions):
            for broker_id in partition.replicas:
                waiting.setdefault(broker_id, set()).add(number)
        doomed = self.doomed[topic.name] = Doomed(topic, waiting)
        return doomed

    def _tell(self, doomed: Doomed, broker_id: int) -> None:
        if broker_id in doomed.waiting and broker_id in self._reign.outboxes:
            tell_to_delete(self._reign.outboxes[broker_id], broker_id, doomed.topic)

    def _stopped(self, broker_id: int, partitions: list[TopicPartition]) -> None:
        if self._reign.over:
            return
        for name, number in partitions:
            doomed = self.doomed.get(name)
            if doomed is not None and broker_id in doomed.waiting:
                doomed.waiting[broker_id].discard(number)
        for doomed in {name: self.doomed[name] for name, _number in partitions if name in self.doomed}.values():
            if not doomed.waiting.get(broker_id, True):
                del doomed.waiting[broker_id]
            self._look_at(doomed)

    def brokers_gone(self) -> None:
        """Whoever waits for brokers that are gone waits no more: they are told when they return."""
        for doomed in self.doomed.values():
            self._look_at(doomed)

    def give_up(self, broker_id: int) -> bool:
        """Forgets a broker that will not return. Whether anything waited for it."""
        waited = [doomed for doomed in self.doomed.values() if doomed.waiting.pop(broker_id, None) is not None]
        for doomed in waited:
            self._look_at(doomed)
        return bool(waited)

    def _look_at(self, doomed: Doomed) -> None:
        if not doomed.waiting:
            self._reign.post(lambda: self._erase(doomed.topic.name))
        elif not any(broker_id in self._reign.state.brokers for broker_id in doomed.waiting):
            _settle(doomed)

    async def _erase(self, name: str) -> None:
        """Removes every node of a topic, deepest first, and last the mark that says it must go."""
        doomed = self.doomed.get(name)
        if doomed is not None and doomed.waiting:
            return
        numbers = range(len(doomed.topic.partitions)) if doomed else ()
        wanted = [
            *(paths.partition_state(name, number) for number in numbers),
            *(paths.partition(name, number) for number in numbers),
            paths.partitions(name),
            paths.topic(name),
            paths.topic_config(name),
            paths.delete_topic(name),
        ]
        there = await existing(self._reign.znodes, wanted)
        try:
            await self._reign.ledger.write([Delete(path)] for path in there)
        except MultiError as error:
            if not isinstance(error.cause, NotEmpty):
                raise
            await self._erase_oddities(name)
        self._reign.check()
        self.doomed.pop(name, None)
        self._reign.settings.forget(name)
        logger.info("deleted topic %s", name)
        if doomed is not None:
            _settle(doomed)

    async def _erase_oddities(self, name: str) -> None:
        """Somebody has put nodes of their own below the topic's."""
        await self._reign.znodes.delete_recursively(paths.topic(name))
        rest = await existing(self._reign.znodes, [paths.topic_config(name), paths.delete_topic(name)])
        await self._reign.ledger.write([[Delete(path) for path in rest]])

    async def _marks(self) -> list[str]:
        return await children_if_any(self._reign.znodes, paths.DELETE_TOPICS, self._on_marks)

    def _on_marks(self, _event: WatchEvent) -> None:
        if not self._marks_posted:
            self._marks_posted = True
            self._reign.post(self._marks_changed)

    async def _marks_changed(self) -> None:
        """Tools of Kafka's mark topics by hand."""
        self._marks_posted = False
        marked = await self._marks()
        self._reign.check()
        for name in marked:
            topic = self._reign.state.topics.get(name)
            if topic is not None and self._reign.settings.broker.delete_topic_enable:
                self._begin(topic)
            elif name not in self.doomed:
                await self._reign.ledger.write([[Delete(paths.delete_topic(name))]])
                self._reign.check()

    def end(self) -> None:
        for doomed in self.doomed.values():
            for future in doomed.settled:
                if not future.done():
                    future.set_exception(Deposed())
                    future.exception()  # whoever waited may have gone


def _settle(doomed: Doomed) -> None:
    for future in doomed.settled:
        if not future.done():
            future.set_result(None)
    doomed.settled.clear()
