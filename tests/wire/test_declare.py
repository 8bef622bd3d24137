"""What a declaration means: versions, nulls, tags and defaults, on messages made for it and on Kafka's own."""

import pytest
from declared_values import MESSAGES

from tidelog.wire.api_keys import ApiKey, api_name
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.declare import (
    EMPTY,
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    VersionRange,
    at,
    message,
    struct,
)
from tidelog.wire.errors import DecodeError, EncodeError
from tidelog.wire.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from tidelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from tidelog.wire.messages.fetch import FetchRequest, ReplicaState
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.wire.stored.consumer_groups import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue


@struct
class Inner(Struct):
    number: Int32 = at("0+")
    note: String = at("2+", default="", tagged="2+", tag=0)


@message(versions="0-3", flexible="2+")
class Sample(Message):
    window: Int16 = at("1-2", default=-1)
    maybe: Inner | None = at("2+", default=None, nullable="2+")
    inner: Inner = at("0+")
    inners: list[Inner] = at("0+")
    moved: Int32 = at("0+", default=5, tagged="3+", tag=9)
    extra: list[Int8] = at("3+", default=EMPTY, tagged="3+", tag=1)
    optional: String | None = at("3+", default=None, nullable="3+", tagged="3+", tag=2)


def sample(**values: object) -> Sample:
    return Sample(**{"inner": Inner(number=1), "inners": [], **values})  # type: ignore[arg-type]


# --- version ranges -------------------------------------------------------------------------------------------------


def test_version_ranges_are_written_as_kafka_writes_them() -> None:
    assert list(VersionRange.parse("0-3")) == [0, 1, 2, 3]
    assert list(VersionRange.parse("7")) == [7]
    assert list(VersionRange.parse("none")) == []
    assert 32767 in VersionRange.parse("12+")
    assert 11 not in VersionRange.parse("12+")


# --- classes --------------------------------------------------------------------------------------------------------


def test_fields_left_out_have_their_defaults_and_lists_are_not_shared() -> None:
    first, second = sample(), sample()
    assert (first.window, first.maybe, first.moved, first.extra) == (-1, None, 5, [])
    first.extra.append(1)
    assert second.extra == []


def test_instances_take_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        sample().windw = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Sample(windw=1)  # type: ignore[call-arg]


def test_instances_are_equal_by_value_and_print_their_fields() -> None:
    assert sample(window=3) == sample(window=3)
    assert sample(window=3) != sample(window=4)
    assert Inner(number=1) != ReplicaState()
    assert repr(Inner(number=1)) == "Inner(number=1, note='')"


def test_nullable_versions_and_an_optional_type_go_together() -> None:
    with pytest.raises(AssertionError):

        @message(versions="0", flexible="none")
        class Careless(Message):
            text: String = at("0+", nullable="0+")


def test_only_wire_types_can_be_declared() -> None:
    with pytest.raises(TypeError, match="not a wire type"):

        @message(versions="0", flexible="none")
        class Careless(Message):
            number: int = at("0+")


def test_versions_outside_the_range_are_refused() -> None:
    with pytest.raises(EncodeError, match="versions 0 to 3, not 4"):
        to_bytes(sample(), 4)
    with pytest.raises(DecodeError, match="versions 0 to 3, not -1"):
        decode(Sample, b"", -1)


# --- the bytes of scalars -------------------------------------------------------------------------------------------


@message(versions="0", flexible="none")
class Scalars(Message):
    yes: Bool = at("0+")
    tiny: Int8 = at("0+")
    small: Int16 = at("0+")
    port: UInt16 = at("0+")
    medium: Int32 = at("0+")
    large: Int64 = at("0+")
    real: Float64 = at("0+")
    uuid: Uuid = at("0+")
    uuids: list[Uuid] = at("0+")


def test_numbers_are_big_endian_and_uuids_sixteen_bytes() -> None:
    scalars = Scalars(
        yes=True, tiny=-1, small=-2, port=65535, medium=3, large=-4, real=1.0, uuid=b"u" * 16, uuids=[b"v" * 16]
    )
    encoded = bytes.fromhex("01 ff fffe ffff 00000003 fffffffffffffffc 3ff0000000000000")
    encoded += b"u" * 16 + bytes.fromhex("00000001") + b"v" * 16
    assert to_bytes(scalars, 0) == encoded
    assert decode(Scalars, encoded, 0) == scalars


def test_any_byte_but_zero_is_true() -> None:
    rest = bytes(1 + 2 + 2 + 4 + 8 + 8 + 16 + 4)
    assert [decode(Scalars, bytes([value]) + rest, 0).yes for value in (0, 1, 2, 255)] == [False, True, True, True]


# --- versions of one message ----------------------------------------------------------------------------------------


def test_fields_are_where_their_versions_put_them() -> None:
    message_ = sample(window=2, inners=[Inner(number=3)])
    inner, inners, moved = "00000001", "00000001 00000003", "00000005"
    old = sample(inners=[Inner(number=3)])
    assert to_bytes(old, 0) == bytes.fromhex(inner + inners + moved)
    assert to_bytes(message_, 1) == bytes.fromhex("0002" + inner + inners + moved)


def test_every_struct_of_a_flexible_version_ends_in_its_own_tags() -> None:
    inner = Inner(number=1, note="n")
    message_ = sample(window=2, inner=inner, inners=[Inner(number=3), inner])
    tagged, plain = "00000001 01 00 02 02 6e", "00000003 00"
    expected = "0002" + "ff" + tagged + "03" + plain + tagged + "00000005" + "00"
    assert to_bytes(message_, 2) == bytes.fromhex(expected)
    assert decode(Sample, bytes.fromhex(expected), 2) == message_


def test_a_field_can_move_into_a_tag_and_tags_ascend() -> None:
    message_ = sample(moved=6, extra=[7], optional="o")
    sections = "03" + "01 02 02 07" + "02 02 02 6f" + "09 04 00000006"
    expected = "ff" + "00000001 00" + "01" + sections
    assert to_bytes(message_, 3) == bytes.fromhex(expected)
    assert decode(Sample, bytes.fromhex(expected), 3) == message_


def test_known_tags_may_come_in_any_order_between_unknown_ones() -> None:
    sections = "04" + "09 04 00000006" + "0a 01 ff" + "01 02 02 07" + "00 00"
    encoded = bytes.fromhex("ff" + "00000001 00" + "01" + sections)
    assert decode(Sample, encoded, 3) == sample(moved=6, extra=[7])


@pytest.mark.parametrize(
    "section",
    ["01 09 03 000000", "01 09 05 0000000600", "01 01 01 02 07", "01 09 00", "01 01 00", "7f 01 01"],
    ids=["too small", "too large", "list past its size", "nothing", "no list", "more tags than bytes"],
)
def test_a_known_tag_must_fill_its_size(section: str) -> None:
    with pytest.raises(DecodeError):
        decode(Sample, bytes.fromhex("ff" + "00000001 00" + "01" + section) + bytes(8), 3)


def test_an_unknown_tag_must_not_reach_past_the_end() -> None:
    with pytest.raises(DecodeError, match="claims 5 bytes where 1 are left"):
        decode(Sample, bytes.fromhex("ff 00000001 00 01" + "01 0a 05 00"), 3)


def test_more_tags_than_bytes_are_refused_without_trying() -> None:
    with pytest.raises(DecodeError, match="4294967295 items where 2 bytes"):
        decode(Sample, bytes.fromhex("ff 00000001 00 01" + "ffffffff0f" + "0a 00"), 3)


def test_overlapping_tags_cannot_multiply_the_work() -> None:
    """Ten thousand tags of size nought, each claiming to be a list that runs over all that follow."""
    count = 10_000
    tags = b"\x01\x00" * count
    section = b"\x90\x4e" + tags
    with pytest.raises(DecodeError, match="extra"):
        decode(Sample, bytes.fromhex("ff 00000001 00 01") + section + bytes(count), 3)


# --- null structs ---------------------------------------------------------------------------------------------------


def test_a_nullable_struct_follows_one_byte_that_says_whether_it_is_there() -> None:
    null, there = b"\xff", b"\x01"
    absent = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1, cursor=None)
    assert to_bytes(absent, 0) == b"\x01" + b"\x00\x00\x00\x01" + null + b"\x00"
    present = DescribeTopicPartitionsRequest(
        topics=[], response_partition_limit=1, cursor=Cursor(topic_name="t", partition_index=2)
    )
    assert to_bytes(present, 0) == b"\x01" + b"\x00\x00\x00\x01" + there + b"\x02t\x00\x00\x00\x02\x00" + b"\x00"
    assert decode(DescribeTopicPartitionsRequest, to_bytes(absent, 0), 0) == absent
    assert decode(DescribeTopicPartitionsRequest, to_bytes(present, 0), 0) == present


def test_a_heartbeat_without_news_has_a_null_assignment() -> None:
    for assignment in (None, Assignment(topic_partitions=[])):
        reply = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            member_id="m",
            member_epoch=1,
            heartbeat_interval_ms=5,
            assignment=assignment,
        )
        encoded = to_bytes(reply, 1)
        assert encoded[-2 if assignment is None else -4] == (255 if assignment is None else 1)
        assert decode(ConsumerGroupHeartbeatResponse, encoded, 1) == reply


def test_a_null_struct_in_a_tag_is_a_zero_as_kafkas_own_code_writes_it() -> None:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=None,
    )
    fixed = "00 00 01 01 01 00 ffffffff 00"
    assert to_bytes(value, 0) == bytes.fromhex(fixed + "01 00 01 00")
    assert decode(ConsumerGroupMemberMetadataValue, to_bytes(value, 0), 0) == value

    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=1, supported_protocols=[])
    assert to_bytes(value, 0) == bytes.fromhex(fixed + "01 00 07 01 00000001 01 00")
    assert decode(ConsumerGroupMemberMetadataValue, to_bytes(value, 0), 0) == value


# --- Kafka's own messages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [SaslHandshakeRequest, OffsetDeleteRequest])
def test_some_requests_are_never_flexible(cls: type[Message]) -> None:
    assert list(cls.FLEXIBLE) == []


def test_the_replica_id_of_a_fetch_becomes_a_tag_in_v15() -> None:
    follower = {"max_wait_ms": 0, "min_bytes": 0, "topics": []}
    before = FetchRequest(replica_id=7, **follower)  # type: ignore[arg-type]
    after = FetchRequest(replica_state=ReplicaState(replica_id=7, replica_epoch=9), **follower)  # type: ignore[arg-type]
    assert to_bytes(before, 14).startswith(b"\x00\x00\x00\x07")
    assert to_bytes(after, 15).endswith(b"\x01" + b"\x01\x0d" + b"\x00\x00\x00\x07" + bytes(7) + b"\x09" + b"\x00")
    with pytest.raises(EncodeError):
        to_bytes(before, 15)
    with pytest.raises(EncodeError):
        to_bytes(after, 14)


def test_the_cluster_id_of_a_fetch_is_tag_nought() -> None:
    fetch = FetchRequest(cluster_id="c", max_wait_ms=0, min_bytes=0, topics=[])
    assert to_bytes(fetch, 12).endswith(b"\x01" + b"\x00\x02\x02c")


def test_a_topic_name_can_be_null_only_since_topics_have_ids() -> None:
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"i" * 16, name=None)])
    assert decode(MetadataRequest, to_bytes(by_id, 12), 12) == by_id
    with pytest.raises(EncodeError):
        to_bytes(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)


def test_all_topics_is_null_but_was_an_empty_list_at_first() -> None:
    everything = MetadataRequest(topics=None)
    assert to_bytes(everything, 1) == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError):
        to_bytes(everything, 0)
    assert decode(MetadataRequest, bytes(4), 0).topics == []


def test_requests_and_replies_come_in_pairs_that_agree() -> None:
    requests = {cls.API: cls for cls in MESSAGES if cls.IS_REQUEST}
    replies = {cls.API: cls for cls in MESSAGES if cls.__name__.endswith("Response")}
    assert requests.keys() == replies.keys()
    for key, request in requests.items():
        assert request.VERSIONS == replies[key].VERSIONS
        assert request.FLEXIBLE == replies[key].FLEXIBLE
        assert ApiKey(key).name.replace("_", "") + "REQUEST" == request.__name__.upper()


def test_lists_nest_only_through_structs() -> None:
    """The codecs rely on it."""
    for cls in MESSAGES:
        for field in cls.FIELDS:
            assert not (isinstance(field.type, Array) and isinstance(field.type.item, Array))


def test_every_api_key_has_a_name() -> None:
    assert api_name(18) == "API_VERSIONS"
    assert api_name(-7) == "API key -7"
