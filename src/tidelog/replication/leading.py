"""One reign over a partition: what its leader knows of the followers, and what follows from that.

Pure: offsets and times come in, decisions come out. `Partition` feeds it and does what it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.isr import Follower, InSync, LagBounds, fallen_behind, may_join, safe_end

if TYPE_CHECKING:
    from tidelog.replication.role import Role


class Leading:
    __slots__ = ("_bounds", "_local_id", "_observers", "_waited_for", "epoch_start", "followers", "in_sync")

    def __init__(self, local_id: int, role: Role, epoch_start: int, now_ms: int, bounds: LagBounds) -> None:
        """`epoch_start` is where the log ended when this reign began."""
        self._local_id = local_id
        self._bounds = bounds
        self._observers = frozenset(role.observers)
        self.epoch_start = epoch_start
        self.in_sync = InSync(role.isr)
        # Who is in sync has a full measure of time to show itself to the new leader.
        self.followers = {
            each: Follower(now_ms) if each in role.isr else Follower() for each in role.replicas if each != local_id
        }
        self._waited_for: tuple[Follower, ...] = ()
        self._choose_whom_to_wait_for()

    def take(self, role: Role) -> None:
        """The controller has changed the replicas, or who is in sync, within this reign."""
        self._observers = frozenset(role.observers)
        self.in_sync = self.in_sync.confirm(role.isr)
        known = self.followers
        self.followers = {each: known.get(each) or Follower() for each in role.replicas if each != self._local_id}
        self._choose_whom_to_wait_for()

    def observe(self, observers: tuple[int, ...]) -> None:
        self._observers = frozenset(observers)
        self._choose_whom_to_wait_for()

    def safe_end(self, own_end: int) -> int:
        return safe_end(own_end, self._waited_for)

    def follower(self, replica_id: int) -> Follower:
        found = self.followers.get(replica_id)
        if found is None:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} holds no replica of this partition"
            )
        return found

    def fetched(
        self, replica_id: int, fetch_offset: int, leader_end: int, now_ms: int, broker_epoch: int = -1
    ) -> Follower:
        """A follower asks for `fetch_offset`. A fetch from an earlier life of its broker does not count."""
        follower = self.follower(replica_id)
        if broker_epoch < follower.broker_epoch:
            raise BrokerError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {replica_id} has fetched with epoch {follower.broker_epoch}, this fetch is of {broker_epoch}",
            )
        follower.broker_epoch = broker_epoch
        follower.fetched(fetch_offset, leader_end, now_ms)
        joining = self._may_ever_join(replica_id) and follower.keeps_up(leader_end, now_ms, self._bounds)
        if joining != follower.joining:
            follower.joining = joining
            self._choose_whom_to_wait_for()
        return follower

    def growth(self, leader_end: int, high_watermark: int) -> tuple[int, ...] | None:
        """The in-sync replicas with all who may join them; None if nobody may now.

        Who was refused is proposed alone, the least refused first: it must not keep the others out.
        """
        if self.in_sync.pending or len(self.in_sync.committed) > len(self.followers):
            return None
        newcomers = tuple(
            each
            for each, follower in self.followers.items()
            if self._may_ever_join(each)
            and may_join(follower, high_watermark, self.epoch_start)
            and not 0 <= self._bounds.messages < leader_end - follower.end_offset
        )
        if newcomers and all(self.followers[each].refusals for each in newcomers):
            newcomers = (min(newcomers, key=lambda each: self.followers[each].refusals),)
        else:
            newcomers = tuple(each for each in newcomers if not self.followers[each].refusals)
        return self.in_sync.committed + newcomers if newcomers else None

    def shrinkage(self, leader_end: int, now_ms: int) -> tuple[int, ...] | None:
        """The in-sync replicas without those who have fallen behind; None if nobody has. Time to look at them all."""
        for each, follower in self.followers.items():
            if follower.joining and not (
                self._may_ever_join(each) and follower.keeps_up(leader_end, now_ms, self._bounds)
            ):
                follower.joining = False
                self._choose_whom_to_wait_for()
        if self.in_sync.pending:
            return None
        committed = self.in_sync.committed
        gone = fallen_behind(committed, self.followers, leader_end, now_ms, self._bounds)
        return tuple(each for each in committed if each not in gone) if gone else None

    def propose(self, isr: tuple[int, ...]) -> None:
        self._put(self.in_sync.propose(isr))

    def confirm(self, isr: tuple[int, ...]) -> None:
        for each in isr:
            if each in self.followers:
                self.followers[each].refusals = 0
        self._put(self.in_sync.confirm(isr))

    def withdraw(self) -> None:
        """The controller refused. It does not say because of whom."""
        for each in self.in_sync.proposed or ():
            if each in self.followers and each not in self.in_sync.committed:
                self.followers[each].refusals += 1
        self._put(self.in_sync.withdraw())

    def _put(self, in_sync: InSync) -> None:
        self.in_sync = in_sync
        self._choose_whom_to_wait_for()

    def _may_ever_join(self, replica_id: int) -> bool:
        return replica_id not in self._observers and replica_id not in self.in_sync.maximal

    def _choose_whom_to_wait_for(self) -> None:
        maximal = self.in_sync.maximal
        chosen = []
        for each, follower in self.followers.items():
            follower.in_sync = each in maximal
            follower.joining = follower.joining and self._may_ever_join(each)
            if follower.in_sync or follower.joining:
                chosen.append(follower)
        self._waited_for = tuple(chosen)
