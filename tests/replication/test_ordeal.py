"""Three replicas through crashes, cut links and elections: nothing acknowledged is lost, and the logs become the same.

What happens is chosen by a seed, and happens again for the same seed. The controller is played by the test, as the real
one would act: who dies or comes back leaves the in-sync replicas unless it is the last of them, leaders come from the
in-sync replicas alone, and brokers may hear of all that late.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from cluster_cases import BROKERS, CONTROLLER, Cluster
from replica_cases import ORDERS, ORDERS_ID, content

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError
from tidelog.records.record import iter_batches, iter_records
from tidelog.replication.role import NO_LEADER, Role
from tidelog.testing.forgetful_fs import Forget

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_cases import Machine

    from tidelog.replication.waiting import ProduceWait

SEEDS = 25
STEPS = 120


@dataclass(frozen=True)
class Promise:
    """What a crash may take, and how records are kept from it."""

    name: str
    config: TopicConfig
    forgets: tuple[Forget, ...]


PROCESSES_DIE = Promise(
    "processes die", TopicConfig(min_insync_replicas=2, segment_bytes=1500), forgets=(Forget.NOTHING,)
)
POWER_FAILS = Promise(
    "power fails, with fsync before ack",
    replace(PROCESSES_DIE.config, tidelog_fsync_before_ack="true"),
    forgets=(Forget.NOTHING, Forget.SOMETHING, Forget.EVERYTHING),
)


class Ordeal:
    def __init__(self, promise: Promise, seed: int) -> None:
        self.chance = random.Random(seed)
        self.promise = promise
        self.cluster = Cluster(seed, promise.config)
        # Small portions: to catch up takes many fetches, in the midst of which things happen.
        self.cluster.settings = BrokerConfig.parse(
            {"replica.fetch.max.bytes": "200", "replica.fetch.response.max.bytes": "400"}
        )
        self.cluster.latency_s = lambda: self.chance.choice((0.0005, 0.001, 0.001, 0.004))
        self.roles: list[Role] = []
        """All that were ever decided."""
        self.born: dict[int, int] = {}
        """Which of them were the first that a broker could be told in its present life."""
        self.untold: set[int] = set()
        self.unnoticed: set[int] = set()
        self.waits: list[tuple[int, bytes, ProduceWait]] = []
        self.acknowledged: dict[int, bytes] = {}
        self.ends: dict[int, int] = {}
        """Of the logs of the dead, when they died."""
        self.reigns: dict[int, int] = {}
        self.marks: dict[tuple[int, int, int], int] = {}
        self.count = 0
        self.cluster.tell(Role(ORDERS, ORDERS_ID, 1, 0, BROKERS, BROKERS, 0))

    def run(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (30, self.produce),
            (30, self.pass_time),
            (5, self.cut),
            (8, self.heal),
            (3, self.kill),
            (5, self.start),
            (4, self.notice),
            (3, self.elect),
            (12, self.tell),
            (2, self.tell_late),
        ]
        weights = [weight for weight, _step in steps]
        with self.cluster:
            for _ in range(STEPS):
                self.chance.choices([step for _weight, step in steps], weights)[0]()
                self.collect()
                self.check()
            self.settle()

    # --- what clients do ---

    def produce(self) -> None:
        """To whoever believes to lead."""
        for _broker, machine in self.living():
            if any(partition.leads for partition in machine.replicas):
                for _ in range(self.chance.choice((1, 1, 3, 8))):
                    self.produce_to(machine)

    def produce_to(self, machine: Machine) -> None:
        self.count += 1
        value = b"%d " % self.count * self.chance.choice((1, 20))
        acks_all = self.chance.random() < 0.7
        try:
            offset = machine.run(lambda: machine.node.append(value, all_replicas=acks_all))
            if acks_all:
                wait = machine.run(lambda: machine.node.await_safe(offset))
                self.waits.append((offset, value, wait))
        except BrokerError:
            return

    # --- what happens to machines and links ---

    def pass_time(self) -> None:
        self.cluster.pass_time(self.chance.choice((0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03, 0.3, 2.0)))

    def cut(self) -> None:
        one, other = self.chance.choice(BROKERS), self.chance.choice((CONTROLLER, *BROKERS))
        links = [(one, other), (other, one)]
        self.cluster.cut |= set(self.chance.sample(links, self.chance.randint(1, 2)))

    def heal(self) -> None:
        self.cluster.cut.clear()

    def kill(self) -> None:
        for broker, machine in self.chance.sample(self.living(), min(1, len(self.living()))):
            if self.chance.random() < 0.5:
                machine.node.checkpoint()
            self.ends[broker] = max((partition.log.log_end_offset for partition in machine.replicas), default=0)
            machine.kill(self.chance.choice(self.promise.forgets))
            self.unnoticed.add(broker)

    def start(self) -> None:
        for broker, machine in self.cluster.machines.items():
            if not machine.alive:
                self.end_session(broker)
                machine.start()
                self.born[broker] = len(self.roles) - 1
                self.untold.add(broker)
                return

    # --- what the controller does ---

    def notice(self) -> None:
        for broker in sorted(self.unnoticed):
            self.end_session(broker)

    def end_session(self, broker: int) -> None:
        if broker not in self.unnoticed:
            return
        self.unnoticed.discard(broker)
        role = self.role
        isr = tuple(each for each in role.isr if each != broker) or role.isr
        leader = role.leader
        if leader in {broker, NO_LEADER}:
            leader = next((each for each in isr if self.is_there(each)), NO_LEADER)
        self.decide(replace(role, isr=isr, leader=leader, leader_epoch=role.leader_epoch + 1))

    def elect(self) -> None:
        """As a preferred election does, or a controlled shutdown."""
        able = [each for each in self.role.isr if self.is_there(each)]
        if able:
            leader = self.chance.choice(able)
            self.decide(replace(self.role, leader=leader, leader_epoch=self.role.leader_epoch + 1))

    def tell(self) -> None:
        if self.untold:
            broker = self.chance.choice(sorted(self.untold))
            self.untold.discard(broker)
            self.cluster.tell_one(broker, self.role)

    def tell_late(self) -> None:
        """A request of the controller took a long way. What was meant for an earlier life is fenced off."""
        for broker, _machine in self.chance.sample(self.living(), min(1, len(self.living()))):
            meant = self.roles[self.born.get(broker, 0) :][-5:]
            if meant:
                self.cluster.tell_one(broker, self.chance.choice(meant))

    @property
    def role(self) -> Role:
        return self.cluster.roles[ORDERS]

    def decide(self, role: Role) -> None:
        self.cluster.roles[ORDERS] = replace(role, partition_epoch=self.role.partition_epoch + 1)
        self.roles.append(self.role)
        self.untold |= {broker for broker, _machine in self.living()}

    def is_there(self, broker: int) -> bool:
        """As far as the controller knows."""
        return self.cluster.machines[broker].alive or broker in self.unnoticed

    def living(self) -> list[tuple[int, Machine]]:
        return [(broker, machine) for broker, machine in self.cluster.machines.items() if machine.alive]

    # --- what must hold ---

    def collect(self) -> None:
        """Notes what was acknowledged since."""
        waits, self.waits = self.waits, []
        for offset, value, wait in waits:
            if wait.outstanding:
                self.waits.append((offset, value, wait))
            elif not wait.failures:
                assert self.holders(offset) >= 2, "acknowledged, and too few have it"
                assert self.acknowledged.setdefault(offset, value) == value, "an offset was acknowledged twice"

    def holders(self, offset: int) -> int:
        ends = [
            self.ends[broker]
            if not machine.alive
            else max((partition.log.log_end_offset for partition in machine.replicas), default=0)
            for broker, machine in self.cluster.machines.items()
        ]
        return sum(end > offset for end in ends)

    def check(self) -> None:
        last = max(self.acknowledged, default=-1)
        partitions = [
            (broker, machine, partition) for broker, machine in self.living() for partition in machine.replicas
        ]
        for broker, machine, partition in partitions:
            end = partition.log.log_end_offset
            assert partition.high_watermark <= end
            if broker in self.role.isr and partition.leader_epoch == self.role.leader_epoch:
                assert end > last, f"broker {broker} is in sync and lacks what was acknowledged"
            if partition.leads:
                assert self.reigns.setdefault(partition.leader_epoch, broker) == broker, "two leaders in one reign"
                reign = (broker, machine.lives, partition.leader_epoch)
                assert partition.high_watermark >= self.marks.get(reign, 0), "the high watermark fell"
                self.marks[reign] = partition.high_watermark
        safe = min((partition.high_watermark for _broker, _machine, partition in partitions), default=0)
        contents = {content(partition.log, safe) for _broker, _machine, partition in partitions}
        assert len(contents) <= 1, "logs differ in what is safe"

    def settle(self) -> None:
        """Everything is mended; then all have the same, and nothing acknowledged is missing."""
        cluster = self.cluster
        cluster.cut.clear()
        for _ in BROKERS:
            self.start()
        role = self.role
        leader = role.leader if role.leader in role.isr else role.isr[0]
        self.decide(replace(role, leader=leader, leader_epoch=role.leader_epoch + 1))
        cluster.tell(self.role)
        cluster.until(lambda: len(self.role.isr) == len(BROKERS) and cluster.same())
        cluster.append(leader, b"the last one")
        cluster.until(lambda: cluster.same() and len(set(cluster.high_watermarks())) == 1)
        self.collect()
        found = {
            record.offset: record.value
            for _header, batch in iter_batches(content(cluster.machines[leader].node.log))
            for record in iter_records(batch)
        }
        for offset, value in self.acknowledged.items():
            assert found[offset] == value, f"what was acknowledged at {offset} is lost"
        assert not [failure for loop in cluster.loops for failure in loop.failures]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("promise", [PROCESSES_DIE, POWER_FAILS], ids=lambda promise: promise.name)
def test_what_was_acknowledged_is_kept(promise: Promise, seed: int) -> None:
    Ordeal(promise, seed).run()


def test_a_seed_gives_the_same_story_again() -> None:
    stories = []
    for _ in range(2):
        ordeal = Ordeal(POWER_FAILS, 0)
        ordeal.run()
        stories.append((ordeal.acknowledged, ordeal.reigns, ordeal.cluster.timeline.steps))
    assert stories[0] == stories[1]
    assert stories[0][0]
