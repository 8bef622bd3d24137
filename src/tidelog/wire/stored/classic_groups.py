"""Records of classic groups and of committed offsets on `__consumer_offsets`."""

from tidelog.wire.declare import Bytes, Int32, Int64, Message, String, Struct, at, message, struct


@message(versions="0-1", flexible="none")
class OffsetCommitKey(Message):
    group: String = at("0-1")
    topic: String = at("0-1")
    partition: Int32 = at("0-1")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    offset: Int64 = at("0+")
    leader_epoch: Int32 = at("3+", default=-1, ignorable=True)
    metadata: String = at("0+")
    commit_timestamp: Int64 = at("0+")
    expire_timestamp: Int64 = at("1", default=-1, ignorable=True)


@message(versions="2", flexible="none")
class GroupMetadataKey(Message):
    group: String = at("2")


@struct
class MemberMetadata(Struct):
    member_id: String = at("0+")
    group_instance_id: String | None = at("3+", default=None, nullable="3+", ignorable=True)
    client_id: String = at("0+")
    client_host: String = at("0+")
    rebalance_timeout: Int32 = at("1+", default=-1, ignorable=True)
    session_timeout: Int32 = at("0+")
    subscription: Bytes = at("0+")
    assignment: Bytes = at("0+")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    protocol_type: String = at("0+")
    generation: Int32 = at("0+")
    protocol: String | None = at("0+", nullable="0+")
    leader: String | None = at("0+", nullable="0+")
    current_state_timestamp: Int64 = at("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = at("0+")
