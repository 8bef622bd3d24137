"""One simulated machine with a broker on it: the disk outlives the process, which is started and ended at will."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.membership import BrokerIdTaken
from tidelog.config.broker import BrokerConfig
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem
from tidelog.testing.sim.process import BrokerCore
from tidelog.testing.sim.sim_clock import SimClock
from tidelog.znodes.errors import ConnectionLost, SessionExpired

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tidelog.replication.partition import Partition
    from tidelog.testing.sim.checker import Checker
    from tidelog.testing.sim.timeline import SimLoop
    from tidelog.testing.sim.world import World
    from tidelog.types import TopicPartition

_CLOCK_SKEW_MS_MAX = 2000
_PAGE_BYTES = 512
"""Logs are small here; so are the pieces in which a crash tears them."""

_STOP_S_MAX = 60.0
_RESTART_S = 1.0
_POLL_S = 0.05

DEFAULT_SETTINGS = {
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "4000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "15",
    "log.index.interval.bytes": "256",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "default.replication.factor": "3",
    "log.retention.ms": "-1",
    "num.recovery.threads.per.data.dir": "1",
    "controller.socket.timeout.ms": "4000",
}


class SimNode:
    def __init__(
        self,
        world: World,
        checker: Checker,
        broker_id: int,
        settings: Mapping[str, str],
        on_new_life: Callable[[SimNode], None],
    ) -> None:
        self.broker_id = broker_id
        self.loop: SimLoop = world.new_loop(f"broker {broker_id}")
        self._world = world
        self._checker = checker
        self._on_new_life = on_new_life
        chance = world.chance.stream(f"machine {broker_id}")
        self._chance = chance
        self.clock = SimClock(world.timeline, chance.randint(-_CLOCK_SKEW_MS_MAX, _CLOCK_SKEW_MS_MAX))
        self.fs = self._new_disk()
        self._config = BrokerConfig.parse(
            {
                **DEFAULT_SETTINGS,
                "broker.id": str(broker_id),
                "log.dirs": "/data",
                "listeners": f"PLAINTEXT://broker-{broker_id}:9092",
                **settings,
            }
        )
        self._core: BrokerCore | None = None
        self._lives = 0
        self._lossy = False
        """Whether the last end of the process may have taken records with it."""

    # -- what happens to it -------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether there is a process that is not frozen; it may still be starting, or stopping."""
        return self._core is not None and not self.loop.frozen

    def start(self) -> None:
        if self._core is not None:
            return
        self._lives += 1
        self.loop = self._world.new_loop(f"broker {self.broker_id}")
        self._on_new_life(self)
        self._world.note(self.broker_id, f"starts its life {self._lives}")
        core = self._core = BrokerCore(self._world, self.loop, self._config, self.fs, self.clock, self._opened)
        self.loop.create_task(self._run(core))

    async def _run(self, core: BrokerCore) -> None:
        try:
            await core.start()
        except (ConnectionLost, SessionExpired, BrokerIdTaken) as error:
            # A real process would end here, and whoever looks after it would start it again.
            self._world.note(self.broker_id, f"cannot start: {error!r}")
            self.kill()
            self._world.caretaker.call_later(_RESTART_S, self.start)

    def kill(self, forget: Forget = Forget.NOTHING) -> None:
        """SIGKILL; or the machine goes down and forgets what was not synced."""
        if self._core is None:
            return
        self._world.note(self.broker_id, f"is killed and forgets {forget.value}")
        self._end(forget)
        self._lossy |= forget is not Forget.NOTHING

    def wipe(self) -> None:
        """The machine comes back with an empty disk."""
        self.kill(Forget.EVERYTHING)
        self.fs = self._new_disk()
        self._lossy = True

    def pause(self) -> None:
        """SIGSTOP."""
        if self._core is not None:
            self.loop.freeze()

    def resume(self) -> None:
        if self.loop.frozen:
            self.loop.thaw()

    async def stop_cleanly(self) -> None:
        """SIGTERM, until the process is gone."""
        core = self._core
        if core is None:
            return
        stopping, loop = self.loop.create_task(core.stop()), self.loop
        deadline = self._world.timeline.now + _STOP_S_MAX
        # Asked for now and then, since a loop cannot wait for another machine's task.
        while not (stopping.done() or loop.dead or self._world.timeline.now > deadline):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if self._core is core:  # nobody has killed it meanwhile
            self._end(Forget.NOTHING)

    def _end(self, forget: Forget) -> None:
        self._core = None
        self.loop.kill()
        self._world.network.detach(self.broker_id, silently=forget is not Forget.NOTHING)
        self.fs.crash(forget)
        self._checker.ended(self.broker_id)

    def _new_disk(self) -> ForgetfulFilesystem:
        disk = ForgetfulFilesystem(self._chance.getrandbits(32), _PAGE_BYTES)
        disk.make_dir("/data")
        disk.sync_dir("/")
        return disk

    def _opened(self, core: BrokerCore) -> None:
        """The logs are open: what is in them is looked at before anybody uses them."""
        self._checker.restarted(self.broker_id, core.store.logs.values(), lossy=self._lossy)
        self._lossy = False

    # -- what is in it ------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterable[Partition]:
        return self._core.partitions if self._core else ()

    @property
    def logs(self) -> Collection[TopicPartition]:
        return self._core.store.logs.keys() if self._core else ()

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        return next((each for each in self.partitions if each.topic_partition == topic_partition), None)
