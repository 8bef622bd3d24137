"""Settling accounts once all faults are over: replicas whole and alike, acknowledged batches there and in order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.testing.sim.ledger import Mirror
from tidelog.testing.sim.producing import ACKS_ALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.testing.sim.checker import Checker
    from tidelog.testing.sim.consuming import SimConsumer
    from tidelog.testing.sim.ledger import PartitionLedger
    from tidelog.testing.sim.node import SimNode
    from tidelog.testing.sim.producing import SimProducer
    from tidelog.types import TopicPartition


def settle_accounts(
    checker: Checker,
    nodes: Sequence[SimNode],
    producers: Sequence[SimProducer],
    consumers: Sequence[SimConsumer],
) -> str | None:
    """What is still to come, in words; None once everything is settled. Raises a Violation for what never can be."""
    for producer in producers:
        waiting = [sent for sent in producer.sent if not sent.acknowledged]
        if waiting:
            return f"{producer.name} waits for {waiting[0]}"
    for topic_partition, ledger in checker.ledgers.items():
        unsettled = _unsettled(checker, nodes, topic_partition, ledger)
        if unsettled:
            return f"{topic_partition}: {unsettled}"
        for consumer in consumers:
            position = consumer.positions.get(topic_partition, ledger.end_offset)
            if position < ledger.end_offset:
                return f"{consumer.name} has read {topic_partition} to {position}, not to {ledger.end_offset}"
    for producer in producers:
        _settle_with(checker, producer)
    return None


def _unsettled(
    checker: Checker,
    nodes: Sequence[SimNode],
    topic_partition: TopicPartition,
    ledger: PartitionLedger,
) -> str | None:
    state = checker.states.get(topic_partition)
    assignment = checker.assignments[topic_partition.topic]
    replicas = assignment.partitions[topic_partition.partition]
    if assignment.adding or assignment.removing:
        return f"it is still being moved: {assignment}"
    if state is None or set(state.isr) != set(replicas):
        return f"not all of {replicas} are in sync: {state}"
    for node in nodes:
        if node.broker_id not in state.isr:
            continue
        partition = node.partition(topic_partition)
        if partition is None or partition.leader != state.leader or partition.leader_epoch != state.leader_epoch:
            return f"broker {node.broker_id} does not know of {state}"
        if not partition.high_watermark == partition.log.log_end_offset == ledger.end_offset:
            return (
                f"broker {node.broker_id} has {partition.log.log_end_offset} records, {partition.high_watermark} of "
                f"them safe, of {ledger.end_offset}"
            )
        mirror = checker.mirrors.get((node.broker_id, topic_partition), Mirror())
        if mirror.batches != ledger.promised:
            checker.fail(f"{topic_partition}: broker {node.broker_id} came to rest with another log")
    return None


def _settle_with(checker: Checker, producer: SimProducer) -> None:
    """Each acknowledged batch is there; an idempotent producer's once, and in the order in which it sent them."""
    if producer.acks != ACKS_ALL:
        return
    for topic_partition, ledger in checker.ledgers.items():
        mine = [sent for sent in producer.sent if sent.topic_partition == topic_partition]
        if producer.idempotent:
            stored = [batch.crc for batch in ledger.promised if batch.producer_id == producer.producer_id]
            if stored != [sent.crc for sent in mine]:
                checker.fail(f"{topic_partition}: {producer.name} sent {len(mine)} batches, {len(stored)} are there")
        else:
            there = Counter(batch.crc for batch in ledger.promised)
            lost = next((sent for sent in mine if not there[sent.crc]), None)
            if lost:
                checker.fail(f"{topic_partition}: {producer.name} was told that {lost} is safe, and it is gone")
