"""Records of groups of the newer protocol: in odd orders, with tombstones first, and as Kafka writes them."""

from __future__ import annotations

from itertools import permutations

import pytest
from consumer_readers import GROUP, ConsumerDriver, compacted, durable, replay

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.consumer_member import (
    ClassicPart,
    MemberState,
    Position,
    Profile,
    Subscription,
    profile_from,
    profile_value,
)
from tidelog.coordinators.groups.consumer_records import (
    TopicFacts,
    epoch_record,
    group_tombstones,
    member_tombstones,
    position_record,
    profile_record,
    target_epoch_record,
    target_record,
    topics_record,
)
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

T = b"t" * 16
PROFILE = Profile(
    instance_id="i1",
    rack_id=None,
    client_id="client",
    client_host="/1.2.3.4",
    subscription=Subscription(frozenset({"t"}), "a.*"),
    rebalance_timeout_ms=60_000,
    assignor="range",
    classic=None,
)
CLASSIC = PROFILE._replace(classic=ClassicPart(10_000, (("range", b"\0\1"), ("sticky", b""))))
POSITION = Position(3, 2, MemberState.UNREVOKED_PARTITIONS, {T: frozenset({0})}, {T: frozenset({1, 2})})


@pytest.mark.parametrize("profile", [PROFILE, CLASSIC])
def test_a_profile_survives_its_bytes(profile: Profile) -> None:
    encoded = to_bytes(profile_value(profile), 0)
    assert profile_from(decode(ConsumerGroupMemberMetadataValue, encoded, 0)) == profile


def test_the_records_of_a_member_come_in_any_order() -> None:
    """In a compacted log each key is where it was last written."""
    records = [
        profile_record(GROUP, "m1", PROFILE),
        target_record(GROUP, "m1", {T: frozenset({0})}),
        position_record(GROUP, "m1", POSITION),
        epoch_record(GROUP, 3),
        target_epoch_record(GROUP, 3),
        topics_record(GROUP, {"t": TopicFacts(T, 3)}),
    ]
    states = [durable(replay(order, GroupConfig())) for order in permutations(records)]
    assert all(state == states[0] for state in states)
    assert states[0][GROUP]["owners"] == {(T, 0): "m1", (T, 1): "m1", (T, 2): "m1"}
    assert states[0][GROUP]["statics"] == {"i1": "m1"}


def test_the_next_owner_may_be_read_before_the_last_one_let_go() -> None:
    first = Position(1, 0, MemberState.STABLE, {T: frozenset({0, 1})}, {})
    records = [
        profile_record(GROUP, "m1", PROFILE._replace(instance_id=None)),
        profile_record(GROUP, "m2", PROFILE._replace(instance_id=None)),
        position_record(GROUP, "m1", first),
        position_record(GROUP, "m2", Position(2, 1, MemberState.STABLE, {T: frozenset({1})}, {})),
        position_record(GROUP, "m1", Position(2, 1, MemberState.STABLE, {T: frozenset({0})}, {})),
    ]
    assert durable(replay(records, GroupConfig()))[GROUP]["owners"] == {(T, 0): "m1", (T, 1): "m2"}


def test_tombstones_of_what_is_not_there_mean_nothing() -> None:
    table = replay([*member_tombstones(GROUP, "m1"), *group_tombstones(GROUP, ["m1"])], GroupConfig())
    assert not table.groups


def test_a_group_ends_with_its_tombstones() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    log = [*driver.log, *group_tombstones(GROUP, ["m1"])]
    assert not replay(log, driver.config).groups
    assert not replay(compacted(log), driver.config).groups


def test_a_group_that_begins_again_after_its_tombstones() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    again = [*driver.log, *group_tombstones(GROUP, ["m1"]), *driver.log]
    assert durable(replay(again, driver.config)) == durable(driver.replayed())


def test_records_are_versioned_by_their_kind() -> None:
    driver = ConsumerDriver()
    driver.enter_new("m1")
    assert {record.key_version for record in driver.log} == {3, 4, 5, 6, 7, 8}
    assert {record.value_version for record in driver.log} == {0}


def test_a_state_that_is_not_known_makes_the_member_say_what_it_has() -> None:
    record = position_record(GROUP, "m1", POSITION)
    assert isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue)
    record.value.state = 99
    (member,) = replay([record], GroupConfig()).groups[GROUP].members.values()
    assert member.position.state is MemberState.UNREVOKED_PARTITIONS
