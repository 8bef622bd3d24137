"""Every declaration, field by field, against the definitions that ship inside Kafka's jars.

Requests, responses and what classic consumers tell each other are held against kafka-clients 4.3.0. Four inter-broker
requests left Kafka after 3.9 and come from kafka-clients 3.9.1. The records of groups are those of 3.9.1 as well, those
of transactions of 4.3.0, from the two coordinators' jars.

Not compared: names of structs (they are ours; their fields are compared in place), and the default of a records
field, which is null there and empty here and never on the wire.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from kafka_jar import kafka_clients_jar, kafka_jar, message_definitions

import tidelog.wire.messages
import tidelog.wire.stored
from tidelog.wire.declare import ZERO_UUID, Array, Field, Message, Scalar, Struct, VersionRange

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.peers

GONE_SINCE_4_0 = {
    f"{api}{kind}"
    for api in ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
    for kind in ("Request", "Response")
}

OURS = {"TransactionLogValue": {"last_producer_epoch"}}
"""Fields that Kafka does not have. They are tagged, so that its readers pass over them."""

SCALARS = {
    "int8": Scalar.INT8,
    "int16": Scalar.INT16,
    "int32": Scalar.INT32,
    "int64": Scalar.INT64,
    "uint16": Scalar.UINT16,
    "float64": Scalar.FLOAT64,
    "bool": Scalar.BOOL,
    "uuid": Scalar.UUID,
    "string": Scalar.STRING,
    "bytes": Scalar.BYTES,
    "records": Scalar.RECORDS,
}


def declared_in(package: ModuleType) -> list[type[Message]]:
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
    ]


DECLARED = [*declared_in(tidelog.wire.messages), *declared_in(tidelog.wire.stored)]


@cache
def all_definitions() -> dict[str, dict[str, Any]]:
    """Ours to match: 4.3.0 where it has the message, 3.9.1 for what it dropped and for the records of groups."""
    definitions: dict[str, dict[str, Any]] = {}
    definitions |= message_definitions(kafka_jar("kafka-group-coordinator", "3.9.1"))
    definitions |= message_definitions(kafka_jar("kafka-transaction-coordinator", "4.3.0"))
    definitions |= message_definitions(kafka_clients_jar())
    older = message_definitions(kafka_jar("kafka-clients", "3.9.1"))
    return definitions | {name: older[name] for name in GONE_SINCE_4_0}


def snake_case(name: str) -> str:
    """`HighWatermark` is high_watermark, `ISRNodes` isr_nodes."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def kafka_default(definition: dict[str, Any]) -> Any:
    """What Kafka's generated classes start a field with, as `Field.fresh_default` would give it."""
    kind, text = definition["type"], definition.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    match SCALARS.get(kind):
        case None:  # JSON's own null, unlike the word "null", means no default: an empty struct
            return "a struct of defaults"
        case Scalar.BOOL:
            return str(text).lower() == "true"
        case Scalar.FLOAT64:
            return float(text or 0)
        case Scalar.STRING:
            return text or ""
        case Scalar.BYTES:
            return b""
        case Scalar.UUID:
            return ZERO_UUID
        case _:
            return int(str(text or 0), 0)


def our_default(field: Field) -> Any:
    if isinstance(field.type, type) and field.default is not None:
        return "a struct of defaults"
    return field.fresh_default()


def field_facts(field: Field) -> dict[str, Any]:
    placement = field.placement
    facts = {
        "name": field.name,
        "versions": placement.versions,
        "nullable": placement.nullable,
        "tagged": placement.tagged,
        "tag": placement.tag,
        "ignorable": placement.ignorable,
        "default": our_default(field),
    }
    if field.type is Scalar.RECORDS:
        del facts["default"]
    return facts


def definition_facts(definition: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "name": snake_case(definition["name"]),
        "versions": VersionRange.parse(definition.get("versions") or definition["taggedVersions"]),
        "nullable": VersionRange.parse(definition.get("nullableVersions", "none")),
        "tagged": VersionRange.parse(definition.get("taggedVersions", "none")),
        "tag": definition.get("tag", -1),
        "ignorable": definition.get("ignorable", False),
        "default": kafka_default(definition),
    }
    if definition["type"] == "records":
        del facts["default"]
    return facts


def differences(
    struct: type[Struct],
    definitions: list[dict[str, Any]],
    common: dict[str, list[dict[str, Any]]],
    path: str,
) -> list[str]:
    """What a declared struct says otherwise than Kafka does, one line each."""
    fields = [field for field in struct.FIELDS if field.name not in OURS.get(struct.__name__, ())]
    ours = [field.name for field in fields]
    theirs = [snake_case(definition["name"]) for definition in definitions]
    if ours != theirs:
        return [f"{path}: fields {ours}, Kafka has {theirs}"]
    found = []
    for field, definition in zip(fields, definitions, strict=True):
        here = f"{path}.{field.name}"
        facts = field_facts(field)
        for key, expected in definition_facts(definition).items():
            if facts[key] != expected:
                found.append(f"{here}: {key} is {facts[key]}, Kafka has {expected}")
        found += type_differences(field.type, definition["type"], definition, common, here)
    return found


def type_differences(
    ours: Any, theirs: str, definition: dict[str, Any], common: dict[str, list[dict[str, Any]]], path: str
) -> list[str]:
    if theirs.startswith("[]"):
        if not isinstance(ours, Array):
            return [f"{path}: type is {ours}, Kafka has {theirs}"]
        return type_differences(ours.item, theirs.removeprefix("[]"), definition, common, f"{path}[]")
    if theirs in SCALARS:
        return [] if ours is SCALARS[theirs] else [f"{path}: type is {ours}, Kafka has {theirs}"]
    if not (isinstance(ours, type) and issubclass(ours, Struct)):
        return [f"{path}: type is {ours}, Kafka has the struct {theirs}"]
    return differences(ours, definition.get("fields") or common[theirs], common, path)


def message_differences(message: type[Message], definition: dict[str, Any]) -> list[str]:
    ours = {"versions": message.VERSIONS, "flexible": message.FLEXIBLE, "api": message.API}
    theirs = {
        "versions": VersionRange.parse(definition["validVersions"]),
        "flexible": VersionRange.parse(definition["flexibleVersions"]),
        # A stored record's kind has nothing to do with the keys of requests.
        "api": -1 if definition["type"].startswith("coordinator-") else definition.get("apiKey", -1),
    }
    name = message.__name__
    found = [f"{name}: {key} is {ours[key]}, Kafka has {theirs[key]}" for key in ours if ours[key] != theirs[key]]
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    return found + differences(message, definition["fields"], common, name)


@pytest.mark.parametrize("message", DECLARED, ids=lambda message: message.__name__)
def test_the_declaration_says_what_kafka_says(message: type[Message]) -> None:
    assert message_differences(message, all_definitions()[message.__name__]) == []


def test_what_kafka_does_not_have_can_be_passed_over() -> None:
    for message in DECLARED:
        own = [field for field in message.FIELDS if field.name in OURS.get(message.__name__, ())]
        assert all(field.placement.tag >= 100 for field in own)


def test_a_difference_would_be_noticed() -> None:
    """Guards the comparison itself: each kind of edit to a definition must be reported."""
    from tidelog.wire.messages.fetch import FetchRequest

    original = all_definitions()["FetchRequest"]
    edits: list[dict[str, Any]] = [
        {"versions": "1+"},
        {"nullableVersions": "0+"},
        {"taggedVersions": "13+"},
        {"tag": 3},
        {"ignorable": False},
        {"default": "x"},
        {"type": "bytes"},
        {"name": "ClusterName"},
    ]
    for edit in edits:
        first, *others = original["fields"]
        edited = original | {"fields": [first | edit, *others]}
        assert message_differences(FetchRequest, edited), edit
    for edit in (
        {"validVersions": "0-18"},
        {"flexibleVersions": "11+"},
        {"apiKey": 2},
        {"fields": original["fields"][1:]},
    ):
        assert message_differences(FetchRequest, original | edit), edit
