"""A cluster on which transactions can be held at any step: leaders are where they are wanted, and markers wait.

Three brokers have three replicas of all that the coordinator stores and of the topic `open`. A fourth broker, which is
away while transactions are broken, has the missing replica of the topic `held` and of the groups' offsets. Who asks
for four replicas in sync there has every write refused, markers too, until he asks for less.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from asking import LATEST, try_list_offset
from stepwise import ANSWER_WITHIN_S, WITHIN_S, KeyType, find_coordinator

from tidelog.coordinators.placement import partition_for
from tidelog.errors import ErrorCode
from tidelog.testing import eventually
from tidelog.testing.cluster_logs import difference
from tidelog.types import TopicPartition
from tidelog.wire.messages import create_topics, describe_configs, elect_leaders, incremental_alter_configs
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster_fixtures import StartCluster

    T = TypeVar("T")

BROKERS = (1, 2, 3)
ABSENT = 4
OPEN, HELD, OFFSETS, STATES = "open", "held", "__consumer_offsets", "__transaction_state"
TOPICS = (OPEN, HELD, OFFSETS, STATES)
STATE_PARTITIONS = 6
OFFSET_PARTITIONS = 6
EACH_LEADS = 2
"""Of each of the two topics, so that a transaction can have two partitions with one leader."""

SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "offsets.topic.num.partitions": str(OFFSET_PARTITIONS),
    "offsets.topic.replication.factor": str(len(BROKERS) + 1),
    "auto.leader.rebalance.enable": "false",
}

_TOPIC_RESOURCE = 2
_SET = 0
_MIN_IN_SYNC = "min.insync.replicas"
_READ_COMMITTED = 1


class CrashStage:
    def __init__(self, start_cluster: StartCluster) -> None:
        self.cluster = start_cluster(len(BROKERS) + 1, SETTINGS)
        self._names = 0
        self._find("any", KeyType.GROUP)
        self._create(HELD, [*BROKERS, ABSENT])
        self.cluster.wait_until_in_sync(OFFSETS, HELD)
        self.cluster.stop(ABSENT)
        self.cluster.wait_until_whole()
        self._create(OPEN, BROKERS)
        self._find("any", KeyType.TRANSACTION)
        for topic in TOPICS:
            self.cluster.wait_until_led(topic)
        self.spread_leaders()

    def _find(self, key: str, kind: KeyType) -> None:
        eventually(lambda: _but_for_moves(lambda: find_coordinator(self.cluster, key, kind)), key, within_s=WITHIN_S)

    def _create(self, name: str, replicas: Iterable[int]) -> None:
        replicas = list(replicas)
        assignments = [
            create_topics.CreatableReplicaAssignment(
                partition_index=number,
                broker_ids=[BROKERS[number % 3], *(each for each in replicas if each != BROKERS[number % 3])],
            )
            for number in range(EACH_LEADS * len(BROKERS))
        ]
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        with self.cluster.connect(self.cluster.wait_for_controller()) as client:
            (result,) = client.call(request, 7, create_topics.CreateTopicsResponse).topics
        assert result.error_code == ErrorCode.NONE, result
        self.cluster.wait_until_led(name, len(assignments))

    # --- who does what ---

    def partition(self, topic: str, leader: int, which: int) -> TopicPartition:
        """One of the partitions that this broker leads."""
        return TopicPartition(topic, leader - 1 + which * len(BROKERS))

    def name(self, prefix: str, topic: str, coordinator: int) -> str:
        """A new transactional id or group that this broker looks after."""
        mine = self.cluster.view().led_by(coordinator, topic)
        count = STATE_PARTITIONS if topic == STATES else OFFSET_PARTITIONS
        while True:
            self._names += 1
            name = f"{prefix}#{self._names}"
            if partition_for(name, count) in mine:
                return name

    def spread_leaders(self) -> None:
        """Until each broker leads what it is meant to, and something of each internal topic."""
        preferred = elect_leaders.ElectLeadersRequest(topic_partitions=None, timeout_ms=30_000)

        def spread() -> bool:
            with self.cluster.connect(self.cluster.wait_for_controller(), timeout_s=60) as client:
                client.call(preferred, 2, elect_leaders.ElectLeadersResponse)
            view = self.cluster.view()
            data = [(number, found.leader) for topic in (OPEN, HELD) for number, found in view.of(topic).items()]
            return all(leader == BROKERS[number % 3] for number, leader in data) and all(
                view.led_by(broker, topic) for broker in BROKERS for topic in (OFFSETS, STATES)
            )

        eventually(lambda: _but_for_moves(spread), "leaders to be spread", within_s=WITHIN_S, every_s=0.1)

    # --- holding markers back ---

    def hold(self, topic: str) -> None:
        """From now on nobody can write there."""
        self._ask_for_in_sync(topic, len(BROKERS) + 1)

    def release(self, topic: str) -> None:
        self._ask_for_in_sync(topic, 2)

    def _ask_for_in_sync(self, topic: str, replicas: int) -> None:
        change = incremental_alter_configs.AlterableConfig(
            name=_MIN_IN_SYNC, config_operation=_SET, value=str(replicas)
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[change]
                )
            ],
            validate_only=False,
        )

        def changed() -> bool:
            with self.cluster.connect(self.cluster.wait_for_controller()) as client:
                reply = client.call(request, 1, incremental_alter_configs.IncrementalAlterConfigsResponse)
            return reply.responses[0].error_code == ErrorCode.NONE

        eventually(lambda: _but_for_moves(changed), f"a setting of {topic} to change", within_s=WITHIN_S)
        eventually(
            lambda: all(self._in_sync_asked_for(broker, topic) == replicas for broker in self.cluster.awake),
            f"all brokers to know a setting of {topic}",
            within_s=WITHIN_S,
        )

    def _in_sync_asked_for(self, broker: int, topic: str) -> int:
        wanted = describe_configs.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_MIN_IN_SYNC]
        )
        with self.cluster.connect(broker) as client:
            request = describe_configs.DescribeConfigsRequest(resources=[wanted])
            (result,) = client.call(request, 4, describe_configs.DescribeConfigsResponse).results
        return int(result.configs[0].value or 0) if result.configs else 0

    def is_open_in(self, place: TopicPartition, producer_id: int) -> bool:
        """Whether a transaction of the producer has begun in a partition and its marker is not there."""
        leader = self.cluster.view().partitions[place].leader
        asked = TopicRequest(name=place.topic, partition_indexes=[place.partition])
        with self.cluster.connect(leader, timeout_s=ANSWER_WITHIN_S) as client:
            reply = client.call(DescribeProducersRequest(topics=[asked]), 0, DescribeProducersResponse)
        (partition,) = reply.topics[0].partitions
        assert partition.error_code == ErrorCode.NONE, partition
        return any(
            each.producer_id == producer_id and each.current_txn_start_offset >= 0
            for each in partition.active_producers
        )

    # --- what has to be true in the end ---

    def wait_until_replicated(self) -> None:
        """Until the three brokers are in sync everywhere."""

        def replicated() -> bool:
            return all(
                found.in_sync >= set(BROKERS)
                for broker in BROKERS
                for topic in TOPICS
                for found in self.cluster.view(broker).of(topic).values()
            )

        try:
            eventually(lambda: _but_for_moves(replicated), "all to be in sync", within_s=WITHIN_S, every_s=0.05)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.cluster.report()}") from None

    def wait_until_nothing_is_open(self) -> None:
        """Until the last stable offset is the end of every partition."""

        def behind() -> list[str]:
            found = []
            for topic in TOPICS:
                for number, partition in self.cluster.view().of(topic).items():
                    with self.cluster.connect(partition.leader) as client:
                        end = try_list_offset(client, topic, LATEST, number)
                        stable = try_list_offset(client, topic, LATEST, number, isolation_level=_READ_COMMITTED)
                    if end.error_code or stable.error_code or end.offset != stable.offset:
                        found.append(f"{topic}-{number}: {stable.offset} of {end.offset}")
            return found

        try:
            eventually(lambda: not behind(), "all transactions to end", within_s=WITHIN_S, every_s=0.1)
        except TimeoutError:
            raise AssertionError(f"transactions stay open: {behind()}") from None

    def wait_until_alike(self) -> None:
        """Until the three brokers have the same bytes. Nobody may be writing."""
        self.wait_until_replicated()
        directories = {number: self.cluster.broker(number).data_dir for number in BROKERS}

        def differences() -> list[str]:
            places = [place for place in self.cluster.view().partitions if place.topic in TOPICS]
            return [found for place in places if (found := difference(directories, place)) is not None]

        try:
            eventually(lambda: not differences(), "identical logs", within_s=WITHIN_S)
        except TimeoutError:
            raise AssertionError(f"replicas differ: {differences()}") from None


def _but_for_moves(ask: Callable[[], T]) -> T | None:
    """None while nobody answers."""
    try:
        return ask()
    except OSError:
        return None


def at_once(do: Callable[[Any], Any], all_of: Iterable[Any]) -> None:
    """For all of them, several at a time; the failures of all are told."""
    everything = list(all_of)
    with ThreadPoolExecutor(6) as pool:
        outcomes = [(each, pool.submit(do, each)) for each in everything]
    failures = [f"{each}: {error}" for each, outcome in outcomes if (error := outcome.exception()) is not None]
    assert not failures, f"{len(failures)} of {len(everything)}:\n" + "\n".join(failures[:20])
