"""A consumer with isolation.level=read_committed, which does with aborted transactions what real ones do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.testing.transaction_sim.ledger import Violation

if TYPE_CHECKING:
    from tidelog.testing.transaction_sim.ledger import Ledger, Sent
    from tidelog.testing.transaction_sim.partition import SimPartition


class CommittedReader:
    def __init__(self, partition: SimPartition, ledger: Ledger | None) -> None:
        """Without a `ledger` it only reads."""
        self.partition = partition
        self.position = 0
        self.read: list[Sent] = []
        self._ledger = ledger

    def poll(self) -> None:
        partition = self.partition
        upto = partition.last_stable_offset
        if upto < self.position:
            raise Violation(f"the last stable offset of {partition.place} goes from {self.position} to {upto}")
        entries, _ = partition.aborted.overlapping(self.position, upto)
        announced = sorted({(each.first_offset, each.producer_id) for each in entries}, reverse=True)
        void: set[int] = set()
        for batch in partition.batches[self.position : upto]:
            header = batch.header
            while announced and announced[-1][0] <= header.base_offset:
                void.add(announced.pop()[1])
            if batch.marker is not None:
                if not batch.marker.committed:
                    void.discard(header.producer_id)
            elif header.producer_id not in void:
                assert batch.sent is not None
                self._take(batch.sent)
        self.position = upto

    def _take(self, sent: Sent) -> None:
        self.read.append(sent)
        if self._ledger is not None:
            self._ledger.saw(sent, once=not self.partition.holds_offsets)

    def settle(self) -> None:
        """All is at rest: nothing is held back, and whoever reads it all at once reads the same."""
        partition = self.partition
        again = CommittedReader(partition, None)
        again.poll()
        if again.read != self.read:
            raise Violation(f"{partition.place} reads differently from the start: {len(again.read)}, {len(self.read)}")
        if partition.holds_offsets:
            self._settle_offsets()

    def _settle_offsets(self) -> None:
        """The group's offset is the one that was committed last."""
        places = list(self.partition.book.of_topic("tides"))
        found = [value.offset for _place, values in places for value in values if value is not None]
        expected = [self.read[-1].number] if self.read else []
        if found != expected:
            raise Violation(f"the group is at {found}, and {expected} was committed last")
