"""What a cluster has promised about one partition, and whether logs keep it. Plain data, no log is touched here.

A batch is promised once a leader's high watermark has passed it: readers may see it, producers may be told. From then
on it must be in every later leader's log, at the same offset, with the same epoch and bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.records.header import BatchHeader
    from tidelog.types import TopicPartition


class Violation(AssertionError):  # noqa: N818 - named for what was found
    """The cluster broke a promise."""


class BatchId(NamedTuple):
    """A batch as its header tells it apart from any other. The checksum does not cover offset and epoch."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    producer_id: int = -1
    sequence: int = -1

    @classmethod
    def of(cls, header: BatchHeader) -> BatchId:
        return cls(
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            header.crc,
            header.producer_id,
            header.base_sequence,
        )

    def __str__(self) -> str:
        return f"[{self.base_offset}..{self.next_offset}) epoch {self.epoch} crc {self.crc:08x}"


class Mirror:
    """What one replica's log holds, as far as it was looked at; it outlives the broker's process."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.batches: list[BatchId] = []

    def cut(self, end_offset: int) -> list[BatchId]:
        """Forgets what lies at or after `end_offset`, and gives it."""
        keep = len(self.batches)
        while keep and self.batches[keep - 1].next_offset > end_offset:
            keep -= 1
        gone = self.batches[keep:]
        del self.batches[keep:]
        self.end_offset = self.batches[-1].next_offset if self.batches else min(end_offset, self.end_offset)
        return gone

    def between(self, start: int, end: int) -> list[BatchId]:
        """The batches that lie wholly or partly in the range."""
        first = bisect_left(self.batches, start + 1, key=lambda batch: batch.next_offset)
        last = bisect_left(self.batches, end, key=lambda batch: batch.base_offset)
        return self.batches[first:last]


class PartitionLedger:
    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.promised: list[BatchId] = []
        self._promised_in: list[int] = []
        """The epoch of the leader that promised each."""
        self._leaders: dict[int, int] = {}
        self._written: dict[tuple[int, int], BatchId] = {}

    @property
    def end_offset(self) -> int:
        """Everything below is promised."""
        return self.promised[-1].next_offset if self.promised else 0

    def leads(self, broker_id: int, epoch: int) -> bool:
        """Takes down that `broker_id` leads in `epoch`; True the first time. There is one leader per epoch."""
        other = self._leaders.setdefault(epoch, broker_id)
        if other != broker_id:
            self._broken(f"brokers {other} and {broker_id} both lead in epoch {epoch}")
        return self._leaders[epoch] == broker_id

    def wrote(self, broker_id: int, batch: BatchId, before: BatchId | None) -> None:
        """A log has taken a batch. No epoch gives an offset away twice, and epochs never go back."""
        known = self._written.setdefault((batch.epoch, batch.base_offset), batch)
        if known != batch:
            self._broken(f"broker {broker_id} holds {batch} where epoch {batch.epoch} has put {known}")
        if before is not None and (batch.base_offset < before.next_offset or batch.epoch < before.epoch):
            self._broken(f"broker {broker_id} holds {batch} after {before}")

    def promise(self, broker_id: int, epoch: int, batches: Sequence[BatchId]) -> None:
        """A leader's high watermark has passed these, which are the next after what was promised before."""
        for batch in batches:
            if batch.base_offset < self.end_offset:
                self._broken(f"broker {broker_id} promises {batch}, but {self.promised[-1]} was promised before")
            self.promised.append(batch)
            self._promised_in.append(epoch)

    def promised_before(self, epoch: int) -> int:
        """The end of what leaders of earlier epochs have promised: whoever leads in `epoch` must have that.

        A broker may hear late that it was made leader, when a later one has already promised more.
        """
        for batch, promised_in in zip(reversed(self.promised), reversed(self._promised_in), strict=True):
            if promised_in < epoch:
                return batch.next_offset
        return 0

    def between(self, start: int, end: int) -> list[BatchId]:
        first = bisect_left(self.promised, start + 1, key=lambda batch: batch.next_offset)
        last = bisect_left(self.promised, end, key=lambda batch: batch.base_offset)
        return self.promised[first:last]

    def find(self, offset: int) -> BatchId | None:
        found = self.between(offset, offset + 1)
        return found[0] if found else None

    def missing_in(self, mirror: Mirror, upto: int | None = None) -> str | None:
        """What of the promised a replica does not have, in words; None if it has all that was not deleted by age."""
        end = self.end_offset if upto is None else min(upto, self.end_offset)
        wanted = self.between(mirror.start_offset, end)
        got = mirror.between(mirror.start_offset, end)
        if wanted == got:
            return None
        for index, batch in enumerate(wanted):
            if index >= len(got):
                return f"{batch} is missing"
            if got[index] != batch:
                return f"{got[index]} is in the place of {batch}"
        return f"{got[len(wanted)]} is more than was promised"

    def is_promised(self, batch: BatchId) -> bool:
        return self.find(batch.base_offset) == batch

    def _broken(self, what: str) -> None:
        raise Violation(f"{self.topic_partition}: {what}")
