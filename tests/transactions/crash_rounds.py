"""One crash in the midst of many transactions, each at a step of its own; and the judgement of what became of them."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPlace
from crash_cells import ENDED, CrashCell, Step
from crash_stage import BROKERS, EACH_LEADS, HELD, OFFSETS, OPEN, TOPICS, at_once
from stepwise import WITHIN_S

from tidelog.clock import SystemClock
from tidelog.testing import eventually
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crash_cells import Kind
    from crash_stage import CrashStage


Wanted = dict[TopicPartition, dict[str, list[list[str]]]]
"""By partition and transactional id, all that may be found."""


class Manner(Enum):
    """How the victim ends."""

    KILLED = "killed, others take over"
    BACK_AT_ONCE = "killed, back before anybody noticed"
    HANGS = "hangs, others take over, and it wakes up"
    IN_TURN = "killed, and so is another once it is back"


class Figures(NamedTuple):
    cells: int
    records: int
    seconds: float


class CrashRounds:
    def __init__(self, stage: CrashStage) -> None:
        self._stage = stage
        self._clock = SystemClock()
        self._read_upto = {
            TopicPartition(topic, number): 0 for topic in (OPEN, HELD) for number in range(EACH_LEADS * len(BROKERS))
        }

    def run(self, kinds: Sequence[Kind], victim: int, manner: Manner) -> Figures:
        started_s = self._clock.monotonic()
        stage = self._stage
        cells = [CrashCell(stage, kind, victim, number + victim) for number, kind in enumerate(kinds)]
        self._bring_to_steps(cells)
        for cell in cells:
            cell.aim()
        for cell in cells:
            cell.producer.fire()
        self._end(victim, manner)
        for topic in (HELD, OFFSETS):
            stage.release(topic)
        at_once(CrashCell.go_on, cells)
        self._mend(victim, manner)
        stage.wait_until_nothing_is_open()
        stage.wait_until_alike()
        records = self._judge(cells)
        stage.spread_leaders()
        return Figures(len(cells), records, self._clock.monotonic() - started_s)

    def _bring_to_steps(self, cells: Sequence[CrashCell]) -> None:
        at_once(CrashCell.begin, cells)
        turns = [
            (None, {Step.COMPLETE}),
            (HELD, {Step.OFFSETS_MARKED}),
            (OFFSETS, {Step.PREPARED, Step.ONE_MARKED}),
        ]
        for held, steps in turns:
            if held is not None:
                self._stage.hold(held)
            ending = [cell for cell in cells if cell.kind.step in steps & ENDED]
            at_once(CrashCell.end, ending)
            at_once(CrashCell.wait_for_step, ending)
        at_once(CrashCell.wait_for_step, cells)

    def _end(self, victim: int, manner: Manner) -> None:
        cluster = self._stage.cluster
        if manner is Manner.HANGS:
            cluster.pause(victim)
        else:
            cluster.kill(victim)
        if manner is Manner.IN_TURN:
            self._wait_for_others()
            cluster.restart(victim)
            self._stage.wait_until_replicated()
            cluster.kill(_next_to(victim))
        if manner is Manner.BACK_AT_ONCE:
            cluster.restart(victim)
        else:
            self._wait_for_others()

    def _wait_for_others(self) -> None:
        for topic in TOPICS:
            self._stage.cluster.wait_until_led(topic)

    def _mend(self, victim: int, manner: Manner) -> None:
        cluster = self._stage.cluster
        if manner is Manner.HANGS:
            cluster.resume(victim)
        elif manner is Manner.KILLED:
            cluster.restart(victim)
        elif manner is Manner.IN_TURN:
            cluster.restart(_next_to(victim))
        cluster.wait_until_whole()

    # --- judgement ---

    def _judge(self, cells: Sequence[CrashCell]) -> int:
        committed, everything = self._read(committed=True), self._read(committed=False)
        wanted: Wanted = defaultdict(dict)
        written: Wanted = defaultdict(dict)
        for cell in cells:
            cell.learn_outcome(committed[cell.first])
            for place in (cell.first, cell.second):
                wanted[place][cell.producer.transactional_id] = cell.visible(place)
                written[place][cell.producer.transactional_id] = cell.written(place)
        at_once(CrashCell.check_complete, cells)
        at_once(CrashCell.check_offsets, cells)
        wrong = differences("committed", wanted, committed) + differences("everything", written, everything)
        assert not wrong, f"{len(wrong)} readings are wrong:\n" + "\n".join(wrong[:20])
        return sum(len(values) for values in everything.values())

    def _read(self, *, committed: bool) -> dict[TopicPartition, list[str]]:
        """What was written since the last round."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._stage.cluster.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        consumer.assign([ConfluentPlace(*place, offset) for place, offset in self._read_upto.items()])
        found: dict[TopicPartition, list[str]] = {place: [] for place in self._read_upto}
        at_end: dict[TopicPartition, int] = {}

        def take() -> bool:
            for message in consumer.consume(500, 0.1):
                place = TopicPartition(str(message.topic()), message.partition() or 0)
                error, value, offset = message.error(), message.value(), message.offset()
                if error is None:
                    assert isinstance(value, bytes)
                    found[place].append(value.decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    assert offset is not None
                    at_end[place] = offset
            return len(at_end) == len(found)

        try:
            eventually(take, "the ends of all partitions", within_s=WITHIN_S)
        finally:
            consumer.close()
        if not committed:
            self._read_upto = at_end
        return found


def _next_to(broker: int) -> int:
    return BROKERS[BROKERS.index(broker) - 1]


def differences(what: str, wanted: Wanted, found: dict[TopicPartition, list[str]]) -> list[str]:
    """How what was read differs from what is wanted of each transactional id, for people."""
    wrong = []
    for place, values in found.items():
        by_id: dict[str, list[str]] = {name: [] for name in wanted[place]}
        for value in values:
            by_id.setdefault(value.split("|")[0], []).append(value)
        wrong += [
            f"{what} of {name} in {place}: {each}, not {wanted[place].get(name)}"
            for name, each in by_id.items()
            if each not in wanted[place].get(name, [])
        ]
    return wrong
