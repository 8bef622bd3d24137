"""The payloads are Kafka's: its own examples are understood, ours are what it would write, nonsense is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.listeners import Endpoint, SecurityProtocol
from tidelog.types import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, TopicPartition, new_topic_id, parse_topic_id
from tidelog.znodes.errors import NodeFormatError
from tidelog.znodes.nodes import (
    NO_LEADER,
    BrokerRegistration,
    ControllerClaim,
    GroupMember,
    MirroredGroup,
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
    decode_cluster_id,
    decode_config,
    decode_config_change,
    decode_integer,
    decode_log_dir_event,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_integer,
    encode_isr_changes,
    encode_log_dir_event,
    encode_owner,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "host1", 9092)
INSIDE = Endpoint("INSIDE", SecurityProtocol.SASL_SSL, "::1", 9093)


def test_broker_registration() -> None:
    registration = BrokerRegistration((PLAIN, INSIDE), timestamp_ms=123, rack="r1")
    data = registration.encode()
    assert json.loads(data) == {
        "version": 5,
        "host": "host1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "123",
        "endpoints": ["PLAINTEXT://host1:9092", "INSIDE://[::1]:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "INSIDE": "SASL_SSL"},
        "features": {},
        "rack": "r1",
    }
    assert BrokerRegistration.decode("/b", data) == registration
    only_inside = json.loads(BrokerRegistration((INSIDE,), 1).encode())
    assert (only_inside["host"], only_inside["port"], "rack" in only_inside) == (None, -1, False)


@pytest.mark.parametrize(
    "text",
    [
        '{"version":1,"host":"host1","port":9092,"jmx_port":9999,"timestamp":"123"}',
        '{"version":2,"host":"host1","port":9092,"timestamp":"123","endpoints":["PLAINTEXT://host1:9092"]}',
        '{"version":4,"timestamp":123,"endpoints":["PLAINTEXT://host1:9092"],"rack":null}',
        '{"version":5,"timestamp":"123","endpoints":["PLAINTEXT://host1:9092"],"features":{"f":{"min":1}},"later":[]}',
    ],
)
def test_broker_registrations_of_all_versions(text: str) -> None:
    assert BrokerRegistration.decode("/b", text.encode()) == BrokerRegistration((PLAIN,), 123)


def test_topic_assignment() -> None:
    topic_id = new_topic_id()
    assignment = TopicAssignment(topic_id, {0: (1, 2), 1: (2,)}, adding={0: (3,)}, removing={0: (1,)})
    fields = json.loads(assignment.encode())
    assert fields["version"] == 3
    assert parse_topic_id(fields["topic_id"]) == topic_id
    assert fields["partitions"] == {"0": [1, 2], "1": [2]}
    assert (fields["adding_replicas"], fields["removing_replicas"]) == ({"0": [3]}, {"0": [1]})
    assert TopicAssignment.decode("/t", assignment.encode()) == assignment


def test_an_old_topic_assignment_has_no_id() -> None:
    old = TopicAssignment.decode("/t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old == TopicAssignment(ZERO_TOPIC_ID, {0: (1,)})


def test_partition_state() -> None:
    state = PartitionState(BrokerId(1), LeaderEpoch(5), (1, 2), controller_epoch=3)
    assert state.encode() == b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}'
    assert PartitionState.decode("/s", state.encode()) == state
    leaderless = PartitionState(NO_LEADER, LeaderEpoch(6), (1,), 3, recovering=True)
    assert json.loads(leaderless.encode())["leader_recovery_state"] == 1
    assert PartitionState.decode("/s", leaderless.encode()) == leaderless


def test_controller_and_its_epoch() -> None:
    claim = ControllerClaim(BrokerId(2), 99)
    assert json.loads(claim.encode()) == {
        "version": 2,
        "brokerid": 2,
        "timestamp": "99",
        "kraftControllerEpoch": -1,
    }
    assert ControllerClaim.decode("/controller", claim.encode()) == claim
    assert ControllerClaim.decode("/controller", b'{"version":1,"brokerid":2,"timestamp":"99"}') == claim
    assert decode_integer("/controller_epoch", encode_integer(12)) == 12
    with pytest.raises(NodeFormatError, match="/controller_epoch must hold a whole number"):
        decode_integer("/controller_epoch", b"twelve")


def test_config() -> None:
    assert encode_config({"retention.ms": "5"}) == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert decode_config("/c", encode_config({"a": "b"})) == {"a": "b"}
    assert decode_config("/c", b"") == {}
    assert decode_config_change("/c", encode_config_change("topics/t")) == "topics/t"
    assert decode_log_dir_event("/l", encode_log_dir_event(7)) == 7


def test_producer_id_block() -> None:
    block = ProducerIdBlock(BrokerId(1), 1000, 1999)
    assert block.encode() == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert ProducerIdBlock.decode("/p", block.encode()) == block


def test_the_rest() -> None:
    assert encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert decode_cluster_id("/cluster/id", encode_cluster_id("abc")) == "abc"
    assert json.loads(encode_isr_changes([TopicPartition("t", 1)])) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 1}],
    }
    assert json.loads(GroupMember(("t",), 5).encode()) == {
        "version": 1,
        "subscription": {"t": 1},
        "pattern": "static",
        "timestamp": "5",
    }


def test_a_member_that_subscribes_by_pattern_has_one_in_place_of_topics() -> None:
    member = GroupMember((), 5, "logs-.*")
    assert json.loads(member.encode()) == {
        "version": 1,
        "subscription": {"logs-.*": 1},
        "pattern": "white_list",
        "timestamp": "5",
    }


@pytest.mark.parametrize("member", [GroupMember((), 1), GroupMember(("a", "b"), 2), GroupMember((), 3, "a|b")])
def test_what_a_member_subscribes_to_is_read_as_it_was_written(member: GroupMember) -> None:
    assert GroupMember.decode("/m", member.encode()) == member


def test_a_member_as_a_consumer_of_old_wrote_it() -> None:
    data = b'{"version":1,"subscription":{"t":3},"pattern":"static","timestamp":"1400000000000"}'
    assert GroupMember.decode("/m", data) == GroupMember(("t",), 1_400_000_000_000)
    with pytest.raises(NodeFormatError, match="one pattern, not 2"):
        GroupMember.decode("/m", b'{"version":1,"subscription":{"a":1,"b":1},"pattern":"white_list"}')


def test_the_coordinator_of_a_mirrored_group_is_named() -> None:
    assert MirroredGroup(BrokerId(3)).encode() == b'{"version":1,"coordinator":3}'
    assert MirroredGroup.decode("/g", b'{"version":1,"coordinator":3}') == MirroredGroup(BrokerId(3))
    assert encode_owner("c-1") == b"c-1"


DECODERS: list[Callable[[str, bytes], object]] = [
    BrokerRegistration.decode,
    TopicAssignment.decode,
    PartitionState.decode,
    ControllerClaim.decode,
    ProducerIdBlock.decode,
    GroupMember.decode,
    MirroredGroup.decode,
    decode_config_change,
    decode_log_dir_event,
    decode_cluster_id,
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"1", b"{}", b'{"version":99}', b'{"version":[]}', b"\xff", b"[" * 9999]
)
def test_nonsense_is_refused_with_the_nodes_name(decode: Callable[[str, bytes], object], data: bytes) -> None:
    with pytest.raises(NodeFormatError, match="/some/node"):
        decode("/some/node", data)


@pytest.mark.parametrize(
    ("decode", "text", "said"),
    [
        (
            PartitionState.decode,
            '{"version":1,"leader":1,"leader_epoch":0,"isr":1,"controller_epoch":1}',
            "'isr' must be",
        ),
        (PartitionState.decode, '{"version":1,"leader":true,"leader_epoch":0,"isr":[]}', "'leader' must be"),
        (PartitionState.decode, '{"version":1,"leader":1}', "has no field 'leader_epoch'"),
        (PartitionState.decode, '{"version":2}', "has version 2 of its format; this broker reads 1"),
        (TopicAssignment.decode, '{"version":3,"partitions":{"x":[]}}', "'partitions' must be"),
        (TopicAssignment.decode, '{"version":3,"partitions":{"0":["1"]}}', "'partitions' must be"),
        (TopicAssignment.decode, '{"version":3,"topic_id":"short","partitions":{}}', "topic id"),
        (BrokerRegistration.decode, '{"version":5,"endpoints":["nonsense"]}', "must be NAME://host:port"),
        (BrokerRegistration.decode, '{"version":5,"endpoints":["A://h:1"]}', "unknown security protocol 'A'"),
        (BrokerRegistration.decode, '{"version":5,"endpoints":"A://h:1"}', "'endpoints' must be a list"),
        (decode_config, '{"version":1,"config":{"a":1}}', "'config' must be an object of texts"),
        (decode_cluster_id, '{"version":1,"id":5}', "'id' must be text"),
    ],
)
def test_wrong_fields_are_named(decode: Callable[[str, bytes], object], text: str, said: str) -> None:
    with pytest.raises(NodeFormatError) as refusal:
        decode("/some/node", text.encode())
    assert said in str(refusal.value)
    assert "/some/node" in str(refusal.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["host", "port", "endpoints", "timestamp", "partitions", "topic_id", "isr", "leader", "brokerid", "config", "id"]
)


@given(st.sampled_from(DECODERS), st.dictionaries(FIELDS, JSON, max_size=5), st.integers(1, 5))
def test_any_json_is_understood_or_refused(
    decode: Callable[[str, bytes], object], fields: dict[str, object], version: int
) -> None:
    try:
        decode("/some/node", json.dumps({"version": version, **fields}).encode())
    except NodeFormatError as refusal:
        assert "/some/node" in str(refusal)  # noqa: PT017 - most are refused, not all


@given(
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(0, 2**31 - 1), max_size=5),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_partition_states_come_back(leader: int, epoch: int, isr: list[int], controller: int, recovering: bool) -> None:
    state = PartitionState(BrokerId(leader), LeaderEpoch(epoch), tuple(isr), controller, recovering)
    assert PartitionState.decode("/s", state.encode()) == state
