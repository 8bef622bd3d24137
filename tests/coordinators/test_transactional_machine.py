"""Plain commits, commits in transactions, markers, deletions and time in any order, against a model that is a list.

The model: what counts at a place is the last thing in the log there, of all that counts: plain ones always do, those in
a transaction once that is committed. Loading the log, and loading it compacted, must lead to what lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from group_driver import GroupDriver
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.registry import GroupBook
from tidelog.coordinators.runtime import take_in
from tidelog.errors import ErrorCode
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.coordinators.decision import LoadedBatch
    from tidelog.coordinators.groups.shard import GroupShard

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("t", "u"), (0, 1), (1, 2, 3)
HOUR_MS = 3_600_000

Place = tuple[str, str, int]
PLACES: list[Place] = [(group, topic, partition) for group in GROUPS for topic in TOPICS for partition in PARTITIONS]

places = st.sampled_from(PLACES)
producers = st.sampled_from(PRODUCERS)


class Write(NamedTuple):
    at: int
    place: Place
    offset: int | None
    batch: int
    """Which of the batches in the log it is in."""


class Model(NamedTuple):
    """What a log says, by its definition."""

    committed: dict[Place, int]
    unstable: set[Place]
    open: dict[int, list[Write]]
    aborted: list[Write]


def model_of(history: Iterable[LoadedBatch]) -> Model:
    counting: list[Write] = []
    aborted: list[Write] = []
    still_open: dict[int, list[Write]] = {}
    at = 0
    for number, batch in enumerate(history):
        for key, value in batch.records:
            if isinstance(key, OffsetCommitKey):
                offset = value.offset if isinstance(value, OffsetCommitValue) else None
                write = Write(at, (key.group, key.topic, key.partition), offset, number)
                if batch.transaction is None:
                    counting.append(write)
                else:
                    still_open.setdefault(batch.transaction.producer_id, []).append(write)
            at += 1
        if batch.transaction is not None and batch.committed is not None:
            ended = still_open.pop(batch.transaction.producer_id, [])
            (counting if batch.committed else aborted).extend(ended)
    last: dict[Place, Write] = {}
    for write in sorted(counting):
        last[write.place] = write
    pending = [write for writes in still_open.values() for write in writes]
    return Model(
        {place: write.offset for place, write in last.items() if write.offset is not None},
        {write.place for write in pending if write.place not in last or write.at > last[write.place].at},
        still_open,
        aborted,
    )


def compacted(history: list[LoadedBatch]) -> Iterator[LoadedBatch]:
    """As the log's compaction leaves it: not beyond the first open transaction, and nothing of aborted ones."""
    model = model_of(history)
    stable_end = min((write.batch for writes in model.open.values() for write in writes), default=len(history))
    dropped = {(write.batch, write.place) for write in model.aborted if write.batch < stable_end}
    newest: dict[Place, int] = {}
    for number, batch in enumerate(history[:stable_end]):
        for place in _places(batch):
            if (number, place) not in dropped:
                newest[place] = number
    for number, batch in enumerate(history):
        if number >= stable_end:
            yield batch
            continue
        kept = [
            (key, value)
            for (key, value), place in zip(batch.records, _places(batch), strict=True)
            if newest.get(place) == number and (number, place) not in dropped
        ]
        yield batch._replace(records=kept)


def _places(batch: LoadedBatch) -> list[Place]:
    keys = [key for key, _value in batch.records]
    assert all(isinstance(key, OffsetCommitKey) for key in keys), "nobody joins in these stories"
    return [(key.group, key.topic, key.partition) for key in keys if isinstance(key, OffsetCommitKey)]


class TransactionalOffsets(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        config = GroupConfig(offsets_retention_ms=24 * HOUR_MS, offsets_retention_check_interval_ms=HOUR_MS)
        self.driver = GroupDriver(config, **dict.fromkeys(TOPICS, len(PARTITIONS)))
        self.offset = 0

    def _next_offset(self) -> int:
        self.offset += 1
        return self.offset

    @rule(place=places)
    def commit(self, place: Place) -> None:
        group, topic, partition = place
        self.driver.commit(group, {(topic, partition): self._next_offset()})

    @rule(group=st.sampled_from(GROUPS), chosen=st.sets(st.sampled_from([(t, p) for t in TOPICS for p in PARTITIONS]),
          min_size=1), producer_id=producers)  # fmt: skip
    def commit_in_transaction(self, group: str, chosen: set[tuple[str, int]], producer_id: int) -> None:
        offsets = {each: self._next_offset() for each in sorted(chosen)}
        assert set(self.driver.commit_in_transaction(group, offsets, producer_id)) == {ErrorCode.NONE}

    @rule(producer_id=producers, committed=st.booleans())
    def end(self, producer_id: int, committed: bool) -> None:
        self.driver.end_transaction(producer_id, committed=committed)

    @rule(place=places)
    def delete_offset(self, place: Place) -> None:
        group, topic, partition = place
        deleted = OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
        )
        self.driver.ask(OffsetDeleteRequest(group_id=group, topics=[deleted]), 0)
        model = model_of(self.driver.history)
        assert place not in model.committed
        assert place not in model.unstable

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        before = model_of(self.driver.history)
        code = self.driver.delete(group)
        if any(place[0] == group for place in before.unstable):
            assert code == ErrorCode.NON_EMPTY_GROUP
            assert model_of(self.driver.history) == before
        else:
            assert code in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}
            assert not any(place[0] == group for place in model_of(self.driver.history).committed)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.driver.perform(self.driver.shard.on_topics_changed(self.driver.topics, self.driver.now_ms, [topic]))
        model = model_of(self.driver.history)
        assert not any(place[1] == topic for place in (*model.committed, *model.unstable))

    @rule(hours=st.integers(1, 30))
    def time_passes(self, hours: int) -> None:
        before = model_of(self.driver.history)
        self.driver.advance(hours * HOUR_MS)
        after = model_of(self.driver.history)
        assert after.unstable == before.unstable, "what is in a transaction does not expire"
        for place in before.unstable & before.committed.keys():
            assert after.committed[place] == before.committed[place]

    @rule()
    def reload(self) -> None:
        self.driver.reload()

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def it_is_as_the_model_says(self) -> None:
        history = self.driver.history
        model = model_of(history)
        check_shard(self.driver.shard, model)
        shard = self.driver.new_shard()
        for batch in compacted(history):
            take_in(shard, batch)
        check_shard(shard, model)
        check_mirror(history, model)


def check_shard(shard: GroupShard, model: Model) -> None:
    book = shard._offsets
    for group, topic, partition in PLACES:
        place = (group, topic, partition)
        found = book.get(*place)
        assert (None if found is None else found.offset) == model.committed.get(place)
        assert book.is_unstable(*place) == (place in model.unstable)
    known = {place[0] for place in (*model.committed, *model.unstable)}
    assert set(book) == known
    assert {group for group in GROUPS if book.is_held(group)} == {place[0] for place in model.unstable}


def check_mirror(history: Iterable[LoadedBatch], model: Model) -> None:
    """Whoever shows groups elsewhere shows what is committed, and no group that has nothing but what may be."""
    book = GroupBook()
    for batch in history:
        if batch.transaction is None:
            for key, value in batch.records:
                book.apply(key, value)
            continue
        for key, value in batch.records:
            book.apply_in_transaction(batch.transaction, key, value)
        if batch.committed is not None:
            book.end_transaction(batch.transaction, committed=batch.committed)
    shown = {
        (group, topic, partition): offset
        for group in book
        for topic in TOPICS
        for partition in PARTITIONS
        if (offset := book.offset(group, (topic, partition))) is not None
    }
    assert shown == model.committed
    assert set(book) == {place[0] for place in model.committed}


TestTransactionalOffsets = TransactionalOffsets.TestCase
