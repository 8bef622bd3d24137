"""A group of the newer protocol (KIP-848): what its records say, and what follows from them.

    Empty        nobody is a member
    Assigning    members or topics have changed since partitions were last divided
    Reconciling  some members are still on their way to the target
    Stable       everybody has what the target gives it

Three epochs only ever grow. The group's counts changes of members, subscriptions and topics. The target's is the group
epoch it was made for. A member's is the epoch of the target it has reached.

Records of one member may come in any order once the log is compacted, so each is taken in on its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer_member import (
    LEFT_EPOCH,
    NO_POSITION,
    ConsumerMember,
    MemberState,
    Partitions,
    Position,
    Profile,
    Subscription,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.groups.consumer_records import TopicFacts


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.topics: dict[str, TopicFacts] = {}
        """Subscribed topics that exist, as they were when the epoch last grew."""
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Partitions] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id."""
        self.subscriptions: Counter[Subscription] = Counter()
        """How many members have each: mostly there is one, whatever the number of members."""
        self.classic_members = 0
        self._owners: dict[bytes, dict[int, str]] = {}
        """Who may be reading a partition: it has it, or has not yet said that it let go of it."""
        self.divide_after_ms = 0
        """Not stored. Until then members that come and go do not cause another target: see `consumer_target`."""

    # --- questions ---

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.position.is_settled_in(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        return self._owners.get(topic_id, _NOBODY).get(partition)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether something that the target gives the member is still held by somebody else."""
        if member.position.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            self.owner(topic_id, number) not in {None, member.member_id}
            for topic_id, numbers in self.target.get(member.member_id, {}).items()
            for number in numbers
        )

    def preferred_assignor(self, known: Iterable[str], changed: Mapping[str, str | None] | None = None) -> str:
        """The one that most members ask for; those that are `known` are in the order in which they break a tie.

        `changed` gives the wishes of members that are about to change theirs.
        """
        votes: Counter[str | None] = Counter(
            member.profile.assignor for member in self.members.values() if member.member_id not in (changed or {})
        )
        votes.update((changed or {}).values())
        return max(known, key=lambda name: votes[name])

    # --- what is stored ---

    def set_profile(self, member_id: str, profile: Profile) -> None:
        member = self._member(member_id)
        self._forget_profile(member)
        member.profile = profile
        self.subscriptions[profile.subscription] += 1
        self.classic_members += profile.classic is not None
        if profile.instance_id is not None:
            self.static_ids[profile.instance_id] = member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self.set_position(member_id, None)
            self._forget_profile(member)
            del self.members[member_id]

    def set_position(self, member_id: str, position: Position | None) -> None:
        """None is what a member that leaves has for a moment: no epoch, no partitions."""
        if position is None and member_id not in self.members:
            return
        member = self._member(member_id)
        self._release(member_id, member.position.assigned)
        self._release(member_id, member.position.revoking)
        member.position = NO_POSITION._replace(epoch=LEFT_EPOCH) if position is None else position
        self._hold(member_id, member.position.assigned)
        self._hold(member_id, member.position.revoking)

    def set_target(self, member_id: str, target: Partitions | None) -> None:
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target

    def _member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id)
            self.subscriptions[member.profile.subscription] += 1
        return member

    def _forget_profile(self, member: ConsumerMember) -> None:
        profile = member.profile
        self.subscriptions[profile.subscription] -= 1
        if not self.subscriptions[profile.subscription]:
            del self.subscriptions[profile.subscription]
        self.classic_members -= profile.classic is not None
        if profile.instance_id is not None and self.static_ids.get(profile.instance_id) == member.member_id:
            del self.static_ids[profile.instance_id]

    def _hold(self, member_id: str, partitions: Partitions) -> None:
        for topic_id, numbers in partitions.items():
            owners = self._owners.setdefault(topic_id, {})
            for number in numbers:
                owners[number] = member_id

    def _release(self, member_id: str, partitions: Partitions) -> None:
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id, {})
            for number in numbers:
                # In a compacted log the next owner may be read before it is read that this one let go.
                if owners.get(number) == member_id:
                    del owners[number]
            if not owners:
                self._owners.pop(topic_id, None)


_NOBODY: dict[int, str] = {}
