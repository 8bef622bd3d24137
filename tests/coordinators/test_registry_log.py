"""A log with an onlooker: the coordinator notices nothing, and the onlooker sees what is safe and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from registry_cases import SharedLog

from tidelog.coordinators.decision import StoredRecord, Transaction
from tidelog.coordinators.groups.registry_log import SLOTS_MAX, FollowedLog
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from tidelog.coordinators.groups.registry_log import Changed


def commit(offset: int, partition: int = 0, group_id: str = "g") -> StoredRecord:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)
    return StoredRecord(OffsetCommitKey(group=group_id, topic="t", partition=partition), 1, value, 3)


MINE = Transaction(7, 0)


class Watched:
    """A followed log, driven as the runtime drives it."""

    def __init__(self, log: SharedLog) -> None:
        self.news = 0
        self.told: list[object] = []
        self.log = FollowedLog(log, self._on_news)

    def _on_news(self) -> None:
        self.news += 1

    def load(self) -> None:
        async def read() -> None:
            async for _portion in self.log.read():
                pass

        asyncio.run(read())
        self.log.when_safe(self.log.end_offset - 1, self.told.append)

    def append(self, *records: StoredRecord) -> None:
        last = self.log.append(records, 0)
        self.log.when_safe(last, self.told.append)

    def append_in_transaction(self, *records: StoredRecord) -> None:
        last = self.log.append(records, 0, MINE)
        self.log.when_safe(last, self.told.append)

    def mark(self, log: SharedLog, *, committed: bool) -> None:
        log.mark(MINE, committed=committed)
        self.log.when_safe(self.log.marked(MINE, committed=committed), self.told.append)

    def is_ready(self) -> bool:
        return self.log.ready

    def touched(self, count_max: int = 100) -> dict[str, Changed]:
        return dict(self.log.take_touched(count_max))

    def offset(self, partition: int = 0) -> int | None:
        return self.log.book.offset("g", ("t", partition))


def test_what_is_not_safe_is_not_seen() -> None:
    log = SharedLog(at_once=False)
    watched = Watched(log)
    watched.load()
    assert watched.is_ready(), "there is nothing to wait for"
    watched.append(commit(1))
    watched.append(commit(2))
    assert watched.offset() is None
    log.make_safe(1)
    assert watched.offset() == 1
    log.make_safe()
    assert watched.offset() == 2
    assert set(watched.told) == {None}


def test_what_was_loaded_counts_once_its_end_is_safe() -> None:
    log = SharedLog(at_once=False)
    log.records += [commit(1), commit(2)]
    watched = Watched(log)
    watched.load()
    watched.append(commit(3))
    log.make_safe(1)
    assert not watched.is_ready()
    assert watched.news == 0
    log.make_safe(2)
    assert watched.is_ready()
    assert watched.offset() == 2
    assert watched.news == 1
    log.make_safe()
    assert watched.touched() == {"g": None}
    assert watched.offset() == 3


def test_a_mark_that_an_earlier_load_waited_for_does_not_end_a_later_one() -> None:
    log = SharedLog(at_once=False)
    log.records.append(commit(1))
    watched = Watched(log)
    watched.load()

    async def read_halfway() -> None:
        reading = watched.log.read()
        await anext(reading)
        log.make_safe()
        assert not watched.is_ready()
        await reading.aclose()  # type: ignore[attr-defined]

    asyncio.run(read_halfway())


def test_what_could_not_be_kept_is_forgotten_when_the_log_is_read_again() -> None:
    log = SharedLog(at_once=False)
    watched = Watched(log)
    watched.load()
    watched.append(commit(1))
    lost = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone")
    log.make_safe(error=lost)
    assert watched.told[-1] is lost
    log.records.clear()
    log.safe = 0
    watched.load()
    assert watched.log.loads == 2
    assert watched.offset() is None
    assert watched.touched() == {}


def test_only_offsets_that_changed_are_named() -> None:
    watched = Watched(SharedLog())
    watched.load()
    watched.append(commit(1))
    assert watched.touched() == {"g": None}
    watched.append(commit(2), commit(3, partition=1))
    watched.append(commit(4))
    assert watched.touched() == {"g": {("t", 0), ("t", 1)}}
    watched.append(*(commit(1, partition) for partition in range(SLOTS_MAX + 1)))
    assert watched.touched() == {"g": None}


def test_groups_are_taken_in_the_order_in_which_they_wait() -> None:
    watched = Watched(SharedLog())
    watched.load()
    for group_id in "abcab":
        watched.append(commit(1, 0, group_id))
    assert list(watched.touched(2)) == ["a", "b"]
    watched.log.touch("a")
    assert list(watched.touched()) == ["c", "a"]


@pytest.mark.parametrize(("committed", "offset", "touched"), [(True, 2, {"g": {("t", 0)}}), (False, 1, {})])
def test_what_is_in_a_transaction_is_seen_once_its_end_is_safe(
    committed: bool, offset: int, touched: dict[str, Changed]
) -> None:
    log = SharedLog(at_once=False)
    watched = Watched(log)
    watched.load()
    watched.append(commit(1))
    watched.append_in_transaction(commit(2))
    log.make_safe()
    assert watched.touched() == {"g": None}
    assert watched.offset() == 1
    watched.mark(log, committed=committed)
    assert watched.offset() == 1
    log.make_safe()
    assert watched.offset() == offset
    assert watched.touched() == touched
    watched.load()
    assert watched.offset() == offset, "reading it leads to the same"


def test_a_group_that_is_only_in_a_transaction_is_not_seen() -> None:
    log = SharedLog()
    watched = Watched(log)
    watched.load()
    watched.append_in_transaction(commit(2))
    assert watched.touched() == {}
    assert list(watched.log.book) == []
    watched.load()
    assert list(watched.log.book) == []
    watched.mark(log, committed=True)
    assert watched.touched() == {"g": None}
