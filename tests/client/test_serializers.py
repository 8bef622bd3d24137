from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fake_registry import FakeRegistry
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import Consumer, NotReadable, NotWritable, OffsetSpec, Producer
from tidelog.client.errors import NeedsPackage
from tidelog.client.serializers import (
    AvroDeserializer,
    AvroSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryError,
    SchemaRegistry,
    from_json,
    from_text,
    plain,
    to_json,
    to_text,
)
from tidelog.client.serializers.framing import message_indexes, prefix, read_message_indexes, unframe
from tidelog.client.serializers.registry import Reference, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

# They have no types.
descriptor_pb2, descriptor_pool, message_factory = (
    importlib.import_module(f"google.protobuf.{name}")
    for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
)

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "none"}]}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


# --- text and JSON ---


@given(st.text())
def test_text_comes_back(text: str) -> None:
    assert from_text(to_text(text)) == text


@pytest.mark.parametrize("fast", [True, False])
@given(value=JSON)
def test_json_comes_back(value: Any, *, fast: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(plain, "_fast", None)
        assert from_json(to_json(value)) == value
        assert json.loads(to_json(value)) == value


def test_json_is_compact_whoever_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": [1, "ä", None], "b": {"c": True}}
    fast = to_json(value)
    monkeypatch.setattr(plain, "_fast", None)
    assert to_json(value) == fast == '{"a":[1,"ä",null],"b":{"c":true}}'.encode()


# --- framing ---


@given(st.integers(0, 2**31 - 1), st.binary())
def test_a_schema_id_stands_in_front(schema_id: int, payload: bytes) -> None:
    framed = unframe(prefix(schema_id) + payload)
    assert (framed.schema_id, bytes(framed.payload)) == (schema_id, payload)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\1\0\0\0\1x", b"{}{}{}"])
def test_what_has_no_schema_id_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="without"):
        unframe(data)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=10), st.binary())
def test_the_way_to_a_message_comes_back(path: list[int], rest: bytes) -> None:
    found, after = read_message_indexes(memoryview(message_indexes(path) + rest))
    assert (list(found), bytes(after)) == (path, rest)


def test_the_first_message_takes_one_byte_and_others_are_zigzagged() -> None:
    assert message_indexes([0]) == b"\0"
    assert message_indexes([1, 0]) == b"\4\2\0"


@given(st.binary(max_size=20))
def test_a_way_that_makes_no_sense_is_refused_politely(data: bytes) -> None:
    try:
        path, _ = read_message_indexes(memoryview(data))
    except ValueError:
        return
    assert path


# --- the registry ---


def test_ids_and_schemas_are_asked_for_once(registry: FakeRegistry) -> None:
    client = SchemaRegistry(registry.url)
    schema = Schema(json.dumps(ORDER), references=(Reference("other", "other-subject", 3),))
    assert [client.register("a/b-value", schema) for _ in range(3)] == [1, 1, 1]
    assert client.look_up("a/b-value", schema) == 1
    assert client.version("a/b-value", schema) == 1
    assert [SchemaRegistry(registry.url).schema(1) for _ in range(2)] == [schema, schema]
    assert registry.seen[0] == "POST /subjects/a%2Fb-value/versions"
    assert len(registry.seen) == 4


def test_a_registry_may_want_a_password(registry: FakeRegistry) -> None:
    SchemaRegistry(registry.url, user="me", password="secret").register("s", Schema('"int"'))
    assert registry.authorizations == {"Basic bWU6c2VjcmV0"}


def test_the_first_registry_that_answers_is_used(registry: FakeRegistry) -> None:
    client = SchemaRegistry(["http://127.0.0.1:1", registry.url])
    assert client.register("s", Schema('"int"')) == 1
    with pytest.raises(RegistryError, match="could be reached"):
        SchemaRegistry("http://127.0.0.1:1").register("s", Schema('"int"'))


@pytest.mark.parametrize("url", ["", "localhost:8081", "file:///etc/passwd"])
def test_an_address_is_one_of_http(url: str) -> None:
    with pytest.raises(ValueError, match="registry"):
        SchemaRegistry(url)


def test_refusals_say_what_the_registry_said(registry: FakeRegistry) -> None:
    with pytest.raises(RegistryError, match="Schema not found") as caught:
        SchemaRegistry(registry.url).schema(99)
    assert (caught.value.status, caught.value.code) == (404, 40403)


@pytest.mark.parametrize(
    "answer", [(200, b"<html>"), (200, b"[]"), (200, b"{}"), (500, b"oops"), (409, b'{"error_code": "x"}')]
)
def test_strange_answers_are_told(registry: FakeRegistry, answer: tuple[int, bytes]) -> None:
    registry.answer = answer
    client = SchemaRegistry(registry.url)
    with pytest.raises(RegistryError):
        client.schema(1)
    with pytest.raises(RegistryError):
        client.register("s", Schema('"int"'))


# --- Avro ---


def written(serializer: Any, topic: str, value: Any) -> bytes:
    asyncio.run(serializer.prepare(topic))
    return bytes(serializer.serialize(topic, value))


def test_avro_comes_back_and_follows_a_newer_schema(registry: FakeRegistry) -> None:
    client = SchemaRegistry(registry.url)
    data = written(AvroSerializer(client, ORDER), "orders", {"item": "tea", "count": 3})
    assert data[:5] == b"\0\0\0\0\1"
    assert list(registry.subjects) == ["orders-value"]
    assert AvroDeserializer(client)(data) == {"item": "tea", "count": 3}
    assert AvroDeserializer(client, WIDER)(data) == {"item": "tea", "count": 3, "note": "none"}
    text = written(AvroSerializer(client, json.dumps(ORDER), part="key"), "orders", {"item": "", "count": 0})
    assert AvroDeserializer(client)(text) == {"item": "", "count": 0}
    assert registry.subjects["orders-key"] == [1]


def test_a_schema_need_not_be_registered_by_whoever_writes(registry: FakeRegistry) -> None:
    client = SchemaRegistry(registry.url)
    with pytest.raises(RegistryError, match="not found"):
        written(AvroSerializer(client, ORDER, register=False), "orders", {})
    client.register("shop.orders", Schema(json.dumps(ORDER, separators=(",", ":"))))
    strict = AvroSerializer(client, ORDER, register=False, subject=lambda topic: f"shop.{topic}")
    assert AvroDeserializer(client)(written(strict, "orders", {"item": "x", "count": 1}))["item"] == "x"


def test_avro_does_not_read_another_kind_of_schema(registry: FakeRegistry) -> None:
    client = SchemaRegistry(registry.url)
    client.register("s", Schema("x", "PROTOBUF"))
    with pytest.raises(ValueError, match="PROTOBUF"):
        AvroDeserializer(client)(prefix(1) + b"x")


def test_a_missing_package_is_named(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(NeedsPackage, match=r"tidelog\[avro\]"):
        AvroSerializer(SchemaRegistry(registry.url), ORDER)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(NeedsPackage, match=r"tidelog\[protobuf\]"):
        ProtobufDeserializer(int)


# --- Protobuf ---


def protobuf_classes() -> dict[str, Any]:
    """What protoc would generate: shop.proto with Order, Invoice and Invoice.Line, which imports money.proto."""
    pool = descriptor_pool.DescriptorPool()
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    amount = money.message_type.add(name="Amount")
    amount.field.add(name="cents", number=1, type=3, label=1)
    shop = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["money.proto"]
    )
    shop.message_type.add(name="Order").field.add(name="item", number=1, type=9, label=1)
    invoice = shop.message_type.add(name="Invoice")
    invoice.nested_type.add(name="Header")
    line = invoice.nested_type.add(name="Line")
    line.field.add(name="price", number=1, type=11, label=1, type_name=".shop.Amount")
    pool.Add(money)
    pool.Add(shop)
    names = ["shop.Order", "shop.Invoice.Line", "shop.Amount"]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def test_protobuf_comes_back_with_its_way_through_the_file(registry: FakeRegistry) -> None:
    classes = protobuf_classes()
    order, line, amount = classes["shop.Order"], classes["shop.Invoice.Line"], classes["shop.Amount"]
    client = SchemaRegistry(registry.url)
    data = written(ProtobufSerializer(client, order), "orders", order(item="tea"))
    assert data[:6] == prefix(2) + b"\0"
    assert ProtobufDeserializer(order)(data).item == "tea"
    nested = written(ProtobufSerializer(client, line), "lines", line(price=amount(cents=5)))
    assert nested[5:8] == b"\4\2\2"
    assert ProtobufDeserializer(line)(nested).price.cents == 5
    with pytest.raises(ValueError, match="not"):
        ProtobufDeserializer(order)(nested)
    assert registry.subjects == {"money.proto": [1], "orders-value": [2], "lines-value": [2]}
    assert registry.schemas[1]["references"] == [{"name": "money.proto", "subject": "money.proto", "version": 1}]


def test_protobuf_takes_only_its_own_messages(registry: FakeRegistry) -> None:
    classes = protobuf_classes()
    serializer: Any = ProtobufSerializer(SchemaRegistry(registry.url), classes["shop.Order"])
    with pytest.raises(TypeError, match="Order"):
        written(serializer, "orders", classes["shop.Amount"]())
    with pytest.raises(TypeError, match="protoc"):
        ProtobufDeserializer(int)


# --- in producer and consumer ---


def test_a_producer_writes_and_a_consumer_reads_what_the_application_has(
    bootstrap: str, topic: str, registry: FakeRegistry
) -> None:
    client = SchemaRegistry(registry.url)

    async def scenario() -> None:
        async with Producer(
            bootstrap, key_serializer=to_text, value_serializer=AvroSerializer(client, ORDER), linger_ms=0
        ) as producer:
            for count in range(3):
                await producer.send(topic, {"item": "tea", "count": count}, key="you")
            await producer.send(topic, None, key="you")
            with pytest.raises(NotWritable, match="the value"):
                await producer.send(topic, {"item": 5})
            with pytest.raises(NotWritable, match="the key"):
                await producer.send(topic, None, key=5)  # type: ignore[arg-type]
        async with Consumer(
            bootstrap, key_deserializer=from_text, value_deserializer=AvroDeserializer(client)
        ) as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            found: list[Any] = []
            while len(found) < 4:
                found += await consumer.poll()
            assert [(record.key, record.value and record.value["count"]) for record in found] == [
                ("you", 0),
                ("you", 1),
                ("you", 2),
                ("you", None),
            ]
        async with Producer(bootstrap) as plain_producer:
            await plain_producer.send_and_wait(topic, b"not Avro")
        async with Consumer(bootstrap, value_deserializer=AvroDeserializer(client)) as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            good = 0
            while good < 4:
                good += len(await consumer.poll())
            with pytest.raises(NotReadable, match="without a"):
                await consumer.poll()

    asyncio.run(scenario())


def test_a_serializer_gives_bytes(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        careless: Any = str.upper
        async with Producer[bytes, str](bootstrap, value_serializer=careless) as producer:
            with pytest.raises(NotWritable, match="where bytes are needed"):
                await producer.send(topic, "text")

    asyncio.run(scenario())


def test_a_registry_that_cannot_be_reached_fails_the_send(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        nowhere = SchemaRegistry("http://127.0.0.1:1")
        async with Producer(bootstrap, value_serializer=AvroSerializer(nowhere, ORDER)) as producer:
            with pytest.raises(RegistryError, match="could be reached"):
                await producer.send(topic, {"item": "x", "count": 1})

    asyncio.run(scenario())
