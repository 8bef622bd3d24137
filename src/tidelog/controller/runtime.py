"""The controller of the cluster, or a broker that would become it when the one there is goes.

Every broker runs one. Whoever creates `/controller` first reigns; the others wait for it to vanish. SUSPENDED is not
LOST: while the session is suspended nobody knows who reigns, so this one stops acting and refuses everything; when it
is connected again and still the controller, it reads everything anew and goes on. When the session is lost, it stands
again with the next one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from tidelog.controller import leader_requests, topic_changes
from tidelog.controller.claim import claim, release, watch_holder
from tidelog.controller.deletion import Deletions
from tidelog.controller.event_queue import EventQueue
from tidelog.controller.image import ClusterImage
from tidelog.controller.ledger import Deposed
from tidelog.controller.log_failures import LogFailures
from tidelog.controller.moves import Moves
from tidelog.controller.reign import Reign
from tidelog.controller.transitions import lead_uncleanly, partitions_of
from tidelog.errors import BrokerError, ErrorCode
from tidelog.znodes import paths
from tidelog.znodes.errors import NodeFormatError, ZnodeError
from tidelog.znodes.store import Delete, SessionState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from tidelog.clock import Clock
    from tidelog.controller.claim import Claim
    from tidelog.controller.couriers import Send
    from tidelog.controller.image import PartitionImage, TopicImage
    from tidelog.controller.moves import Refusals
    from tidelog.controller.settings import Settings
    from tidelog.controller.topic_rules import TopicSpec
    from tidelog.types import TopicPartition
    from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from tidelog.znodes.store import WatchEvent, ZnodeStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 0.5
"""Pause before the controllership is tried again after something failed that should not."""
DELIVERY_WAIT_S = 5.0
"""How long an answer waits for brokers to be told. They are told later all the same."""
PREFERRED, UNCLEAN = 0, 1
"""Types of election, as ElectLeaders has them."""


class Power:
    """A reign with all that belongs to it."""

    def __init__(self, claimed: Claim, reign: Reign) -> None:
        self.claim = claimed
        self.reign = reign
        self.deletions = Deletions(reign)
        self.moves = Moves(reign)
        self.failures = LogFailures(reign)
        self.balancing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        reign = self.reign
        loaded = await reign.load()
        await self.deletions.load()
        await reign.begin(loaded)
        self.deletions.resume(list(reign.state.brokers))
        reign.on_brokers_changed = self._brokers_changed
        await self.moves.load()
        await self.failures.load()
        self.balancing = asyncio.get_running_loop().create_task(self._balance(), name="controller-balance")

    def end(self) -> None:
        self.reign.end()
        self.deletions.end()
        if self.balancing is not None:
            self.balancing.cancel()

    def _brokers_changed(self, came: Iterable[int]) -> None:
        self.deletions.brokers_gone()
        self.deletions.resume(came)
        self.reign.post(self._progress)

    async def _progress(self) -> None:
        await self.moves.progress(self.moves.under_way(None))

    async def _balance(self) -> None:
        while True:
            broker = self.reign.settings.broker
            await asyncio.sleep(broker.leader_imbalance_check_interval_seconds)
            if broker.auto_leader_rebalance_enable:
                self.reign.post(self.reign.balance)


class Controller:
    def __init__(
        self,
        znodes: ZnodeStore,
        clock: Clock,
        settings: Settings,
        send: Send,
        *,
        broker_id: int,
        cluster_id: str = "",
    ) -> None:
        """`send` asks a broker and raises ConnectionError or another OSError when it cannot be reached."""
        self._znodes = znodes
        self._clock = clock
        self._settings = settings
        self._send = send
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._nobody = ClusterImage(cluster_id, -1)
        self._queue = EventQueue(self._failed)
        self._power: Power | None = None
        self._coming: Power | None = None
        """What is being read and told, before it is in power."""
        self._standing_posted = False
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False
        self.holder: int | None = None
        """The broker that is the controller, as far as this one has heard; None if none is."""

    @property
    def is_controller(self) -> bool:
        return self._power is not None

    @property
    def epoch(self) -> int:
        """Of this broker's reign; -1 without one."""
        return self._power.reign.epoch if self._power else -1

    @property
    def state(self) -> ClusterImage:
        """What the controller knows; empty on a broker that is not the controller."""
        return self._power.reign.state if self._power else self._nobody

    async def start(self) -> None:
        """Stands for the controllership, once. To be called when this broker is registered."""
        self._settings.on_topic_settings = self._topic_settings_changed
        self._settings.on_broker_settings = self._broker_settings_changed
        self._znodes.add_listener(self._on_session)
        self._queue.start()
        self._stand_later()
        await self._queue.idle()

    async def stop(self) -> None:
        """Gives the controllership up, if it has it."""
        self._stopped = True
        self._znodes.remove_listener(self._on_session)
        if self._retry is not None:
            self._retry.cancel()
        power = self._power
        self._abdicate()
        await self._queue.stop()
        if power is not None and self._znodes.state is SessionState.CONNECTED:
            try:
                await release(self._znodes, power.claim)
            except ZnodeError as error:
                logger.info("the controllership ends with the session: %s", error)

    async def idle(self) -> None:
        """Waits until there is nothing to decide and every live broker has been told everything."""
        await self._queue.idle()
        if self._power is not None:
            await self._power.reign.couriers.delivered(list(self._power.reign.state.brokers))
            await self._queue.idle()

    # What others ask for.

    async def create(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicImage:
        def event(power: Power) -> Awaitable[TopicImage]:
            return topic_changes.create(power.reign, spec, power.deletions.doomed, validate_only=validate_only)

        topic = await self._ask(event)
        if not validate_only:
            await self._delivered(_hosts(topic.partitions))
        return topic

    async def grow(
        self, name: str, count: int, explicit: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        await self._ask(
            lambda power: topic_changes.grow(power.reign, name, count, explicit, validate_only=validate_only)
        )
        if not validate_only and self._power is not None and name in self.state.topics:
            await self._delivered(_hosts(self.state.topics[name].partitions))

    async def delete(self, name: str) -> None:
        """Ends when all live brokers have deleted what they hold of the topic."""
        gone = await self._ask(lambda power: power.deletions.delete(name))
        try:
            await asyncio.wait_for(asyncio.shield(gone), self._settings.broker.request_timeout_ms / 1000)
        except TimeoutError:
            raise BrokerError(
                ErrorCode.REQUEST_TIMED_OUT, f"topic {name!r} is gone, but a broker has not yet deleted its records"
            ) from None
        except Deposed:
            raise _not_controller() from None
        await self._delivered(())

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        """Answers a leader that wants other in-sync replicas."""
        return await self._ask(
            lambda power: leader_requests.alter_partition(power.reign, power.moves, broker_id, broker_epoch, request)
        )

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Moves leaders away from a broker that is about to stop; what it still leads although others hold it."""
        remaining = await self._ask(lambda power: power.reign.controlled_shutdown(broker_id, broker_epoch))
        await self._delivered(set(self.state.brokers) - {broker_id})  # its successors lead before it goes
        return remaining

    async def elect_leaders(
        self, election_type: int, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """For each partition why it was not elected, or NONE. Without any named, all that need it are."""

        async def event(power: Power) -> dict[TopicPartition, ErrorCode]:
            reign = power.reign
            chosen = wanted
            if chosen is None:
                chosen = [topic_partition for _topic, topic_partition, _partition in partitions_of(reign.state)]
            if election_type == PREFERRED:
                outcome = await reign.elect_preferred(chosen)
            elif election_type == UNCLEAN:
                changes, outcome = lead_uncleanly(reign.state, reign.shutting_down, chosen)
                await reign.commit(changes)
            else:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{election_type} is no type of election")
            if wanted is None:
                needless = ErrorCode.ELECTION_NOT_NEEDED
                return {each: code for each, code in outcome.items() if code is not needless}
            return outcome

        outcome = await self._ask(event)
        await self._delivered(self.state.brokers)
        return outcome

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> Refusals:
        """Begins to move partitions, or cancels moves (None). Returns what was refused; the rest is under way."""
        return await self._ask(lambda power: power.moves.alter(wanted, may_change_factor=may_change_factor))

    async def list_reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionImage]:
        """The partitions that are being moved."""

        async def event(power: Power) -> dict[TopicPartition, PartitionImage]:
            return power.moves.under_way(wanted)

        return await self._ask(event)

    async def unregister_broker(self, broker_id: int) -> None:
        """Forgets a broker that will not come back: nothing waits for it any more."""

        async def event(power: Power) -> None:
            reign = power.reign
            if broker_id in reign.state.brokers:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is running: stop it first")
            waited = power.deletions.give_up(broker_id)
            held = any(broker_id in partition.replicas for _topic, _each, partition in partitions_of(reign.state))
            path = paths.broker_config(broker_id)
            has_settings = await reign.znodes.exists(path) is not None
            if not (waited or held or has_settings):
                raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is known")
            if has_settings:
                await reign.ledger.write([[Delete(path)]])

        await self._ask(event)

    # Standing, reigning, stopping.

    async def _ask(self, event: Callable[[Power], Awaitable[T]]) -> T:
        power = self._power
        if power is None:
            raise _not_controller()

        async def in_this_reign() -> T:
            if power is not self._power:
                raise _not_controller()
            return await event(power)

        try:
            return await self._queue.ask(in_this_reign)
        except (Deposed, ZnodeError) as error:
            raise _not_controller() from error
        except asyncio.CancelledError:
            if self._stopped:
                raise _not_controller() from None
            raise

    async def _delivered(self, broker_ids: Collection[int]) -> None:
        """Waits a while until these brokers and this one have been told what was decided."""
        power = self._power
        if power is None:
            return
        try:
            await asyncio.wait_for(power.reign.couriers.delivered({*broker_ids, self._broker_id}), DELIVERY_WAIT_S)
        except TimeoutError:
            logger.warning("not all of brokers %s have been told yet", sorted(broker_ids))

    def _topic_settings_changed(self, name: str, settings: dict[str, str]) -> None:
        power = self._power
        if power is not None:
            self._post_in(power, lambda: power.reign.topic_settings_changed(name, settings))

    def _broker_settings_changed(self) -> None:
        power = self._power
        if power is not None:
            self._post_in(power, power.reign.settle)  # unclean elections may be allowed now

    def _post_in(self, power: Power, event: Callable[[], Awaitable[None]]) -> None:
        """Into the queue; dropped when the reign is over by then."""

        async def in_this_reign() -> None:
            if not power.reign.over:
                await event()

        self._queue.post(in_this_reign)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._stand_later()
        elif self._power is not None or self._coming is not None:
            logger.warning("the session is %s: not acting as the controller any more", state.value)
            self._abdicate()

    def _abdicate(self) -> None:
        for power in (self._power, self._coming):
            if power is not None:
                power.end()
        self._power = self._coming = None

    def _failed(self, error: Exception) -> None:
        """Whatever it was: what is stored and what is known may differ, so everything is read anew."""
        if isinstance(error, (Deposed, ZnodeError)):
            logger.warning("the reign ends: %r", error)
        else:
            logger.error("the controller failed, and begins anew", exc_info=error)
        self._abdicate()
        if self._retry is None and not self._stopped:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._stand_later()

    def _stand_later(self) -> None:
        if not self._standing_posted and not self._stopped:
            self._standing_posted = True
            self._queue.post(self._stand)

    def _on_holder(self, _event: WatchEvent) -> None:
        self._stand_later()

    async def _stand(self) -> None:
        """Becomes the controller if nobody is. Goes on being it, with a fresh view, if this session still is."""
        self._standing_posted = False
        if self._znodes.state is not SessionState.CONNECTED or self._stopped:
            return
        claimed = await claim(self._znodes, self._broker_id, self._clock.now_ms())
        try:
            self.holder = await watch_holder(self._znodes, self._on_holder)
        except NodeFormatError as error:
            logger.error("%s", error)
        if claimed is None:
            self._abdicate()
            if self.holder is None:
                self._stand_later()
            return
        if self._power is not None and not self._power.reign.over and self._power.claim == claimed:
            return
        await self._take_power(claimed)

    async def _take_power(self, claimed: Claim) -> None:
        self._abdicate()
        began = self._clock.monotonic()
        power: Power | None = None

        def post(event: Callable[[], Awaitable[None]]) -> None:
            assert power is not None
            self._post_in(power, event)

        reign = Reign(claimed, self._broker_id, self._cluster_id, self._znodes, self._settings, self._send, post)
        power = self._coming = Power(claimed, reign)
        await power.begin()
        reign.check()
        self._power, self._coming = power, None
        logger.info(
            "controller with epoch %d: %d brokers, %d partitions, after %.3f s",
            claimed.epoch,
            len(reign.state.brokers),
            reign.state.partition_count(),
            self._clock.monotonic() - began,
        )


def _hosts(partitions: Iterable[PartitionImage]) -> set[int]:
    return {broker_id for partition in partitions for broker_id in partition.replicas}


def _not_controller() -> BrokerError:
    return BrokerError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller: ask for metadata and go there")
