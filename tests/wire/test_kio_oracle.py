"""Every message and version against kio, an independent implementation generated from Kafka's own definitions.

For each version: what we encode kio reads to the same values, kio encodes those values to the same bytes, and we read
those back. kio knows no inter-broker requests of ZooKeeper times and no records of internal topics; `NOT_IN_KIO` lists
them, and test_round_trip.py covers them.
"""

from __future__ import annotations

import dataclasses
import io
import re
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, get_args, get_origin
from uuid import UUID

import pytest
from declared_values import FEW_EXAMPLES, MESSAGES, VERSIONED, instances, versioned_id
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.declare import ZERO_UUID, Array, Field, Message, Scalar, Struct

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

GONE_SINCE_KAFKA_4 = {
    "ControlledShutdownRequest",
    "ControlledShutdownResponse",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
}

# Their definitions live with Kafka's coordinators, which kio does not look at.
STORED_BY_COORDINATORS = {
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TransactionLogKey",
    "TransactionLogValue",
}

NOT_IN_KIO = GONE_SINCE_KAFKA_4 | STORED_BY_COORDINATORS

IN_KIO = [(cls, version) for cls, version in VERSIONED if cls.__name__ not in NOT_IN_KIO]


def kio_key(cls: type[Message]) -> tuple[str, EntityType]:
    """What kio files a message under: the API's name and the direction."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    if name.endswith("_request"):
        return name.removesuffix("_request"), EntityType.request
    if name.endswith("_response"):
        return name.removesuffix("_response"), EntityType.response
    return name, EntityType.data


def kio_entity(cls: type[Message], version: int) -> Any:
    name, kind = kio_key(cls)
    return load_entity_schema(name, version, kind)  # type: ignore[arg-type]


# kio reads durations, points in time and error codes as richer types, which hold less than the integers on the wire.
_DATE_MS_MAX = 4_000_000_000_000
_NARROWED: dict[str, SearchStrategy[Any]] = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "timedelta_i64": st.integers(-(2**45), 2**45),
    "datetime_i64": st.integers(0, _DATE_MS_MAX),
}


class KioCounterpart:
    """A kio class beside a declared one: their fields are in the same order, since both follow Kafka's."""

    def __init__(self, cls: type[Struct], version: int, entity: Any) -> None:
        present = [field for field in cls.FIELDS if version in field.placement.versions]
        self.pairs = list(zip(present, dataclasses.fields(entity), strict=True))
        self._version = version
        self._theirs = {ours.name: theirs for ours, theirs in self.pairs}

    def scalar(self, field: Field) -> SearchStrategy[Any] | None:
        return _NARROWED.get(self._theirs[field.name].metadata["kafka_type"])

    def nested(self, field: Field) -> KioCounterpart:
        item = field.type.item if isinstance(field.type, Array) else field.type
        assert isinstance(item, type)
        return KioCounterpart(item, self._version, _class_in(self._theirs[field.name].type))


def _class_in(annotation: Any) -> Any:
    """The class inside `tuple[X, ...] | None` and the like."""
    if get_origin(annotation) is None:
        return annotation
    return next(_class_in(part) for part in get_args(annotation) if part not in {type(None), Ellipsis})


def assert_same_values(ours: Struct, theirs: Any, version: int) -> None:
    """Field by field, with kio's value turned into what is on the wire."""
    for field, their_field in KioCounterpart(type(ours), version, type(theirs)).pairs:
        assert their_field.name in {field.name, field.name.removesuffix("_ms")}
        _assert_same(getattr(ours, field.name), getattr(theirs, their_field.name), field.type, version)


def _assert_same(our_value: Any, their_value: Any, wire_type: Any, version: int) -> None:
    if isinstance(our_value, Struct):
        assert_same_values(our_value, their_value, version)
    elif isinstance(our_value, list):
        assert len(our_value) == len(their_value)
        for our_item, their_item in zip(our_value, their_value, strict=True):
            _assert_same(our_item, their_item, wire_type.item, version)
    else:
        assert our_value == _on_the_wire(their_value, wire_type)


def _on_the_wire(value: Any, wire_type: Any) -> Any:
    match value:
        case None if wire_type is Scalar.UUID:
            return ZERO_UUID
        case None if wire_type is Scalar.INT64:  # a point in time
            return -1
        case timedelta():
            return value // timedelta(milliseconds=1)
        case datetime():
            return round(value.timestamp() * 1000)
        case UUID():
            return value.bytes
        case IntEnum():
            return int(value)
        case _:
            return value


def test_every_version_that_kio_lacks_is_listed() -> None:
    lacking = {
        cls.__name__
        for cls, version in VERSIONED
        if kio_key(cls)[1] not in schema_name_map.get(kio_key(cls)[0], {}).get(version, {})
    }
    assert lacking == NOT_IN_KIO


def test_no_version_that_kio_has_is_missing_here() -> None:
    """kio follows Kafka's newest release, so the ranges we declare must be its ranges."""
    for cls in MESSAGES:
        if cls.__name__ not in NOT_IN_KIO:
            name, kind = kio_key(cls)
            assert set(cls.VERSIONS) == {version for version, kinds in schema_name_map[name].items() if kind in kinds}


@pytest.mark.parametrize(("cls", "version"), IN_KIO, ids=versioned_id)
def test_kio_reads_and_writes_the_same_bytes(cls: type[Message], version: int) -> None:
    entity = kio_entity(cls, version)
    read, write = entity_reader(entity), entity_writer(entity)

    @FEW_EXAMPLES
    @given(instances(cls, version, KioCounterpart(cls, version, entity)))
    def check(message: Message) -> None:
        encoded = to_bytes(message, version)
        theirs, size = read(encoded, 0)
        assert size == len(encoded)
        assert_same_values(message, theirs, version)

        their_bytes = io.BytesIO()
        write(their_bytes, theirs)
        assert their_bytes.getvalue() == encoded
        assert decode(cls, their_bytes.getvalue(), version) == message

    check()
