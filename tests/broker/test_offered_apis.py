"""What ApiVersions offers is what is served: no more, no less, in every version."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import pytest

import tidelog.wire.messages
from tidelog.errors import ErrorCode
from tidelog.handlers.find_coordinator import GROUP, TRANSACTION
from tidelog.testing import ConnectionEnded, RawClient
from tidelog.wire.api_keys import ApiKey
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.declare import Message
from tidelog.wire.headers import response_body
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess

NEEDED = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""Without these, some client cannot start, or an operator cannot do without another tool."""

PRODUCE_LISTED_FROM = 0
"""Kafka lists Produce from 0 though it serves it from 3: older librdkafka reads compression support off that bound."""

BETWEEN_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
}
"""In the versions that our brokers use: what earlier ones lack, they need."""

NAMED = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")


def declared() -> dict[int, tuple[type[Message], type[Message]]]:
    """Request and response class of every API that has a declaration."""
    found: dict[int, dict[bool, type[Message]]] = {}
    for module_info in pkgutil.iter_modules(tidelog.wire.messages.__path__):
        module = importlib.import_module(f"tidelog.wire.messages.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.API >= 0:
                found.setdefault(value.API, {})[value.IS_REQUEST] = value
    return {api: (pair[True], pair[False]) for api, pair in found.items()}


def offered(client: RawClient) -> dict[int, tuple[int, int]]:
    reply = client.call(NAMED, 4, ApiVersionsResponse)
    assert reply.error_code == ErrorCode.NONE
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in reply.api_keys}


def test_every_api_that_clients_need_is_offered(raw: RawClient) -> None:
    assert offered(raw).keys() >= NEEDED


def test_telemetry_is_not_offered_since_half_of_it_breaks_the_java_consumer(raw: RawClient) -> None:
    assert offered(raw).keys().isdisjoint({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


def test_keys_are_listed_once_and_in_order(raw: RawClient) -> None:
    reply = raw.call(NAMED, 4, ApiVersionsResponse)
    keys = [entry.api_key for entry in reply.api_keys]
    assert keys == sorted(set(keys))


def test_offered_versions_are_those_declared(raw: RawClient) -> None:
    messages = declared()
    for api, (first, last) in offered(raw).items():
        request, _response = messages[api]
        expected_first = PRODUCE_LISTED_FROM if api == ApiKey.PRODUCE else request.VERSIONS.first
        assert first == expected_first or (api in BETWEEN_BROKERS and first > expected_first), ApiKey(api)
        assert last <= request.VERSIONS.last, ApiKey(api)


def test_produce_is_listed_from_zero_but_old_versions_are_refused(broker: BrokerProcess) -> None:
    for version in (0, 1, 2):
        with RawClient(broker.port) as client:
            assert offered(client)[ApiKey.PRODUCE][0] == PRODUCE_LISTED_FROM
            body = b"\x00\x01" + (1000).to_bytes(4, "big") + bytes(4)
            header = bytes([0, 0, 0, version]) + bytes(4) + b"\xff\xff"
            client.send_frame(header + body)
            assert client.wait_until_closed() == 0


def default_request(api: int) -> Message:
    """A request that names nothing: the reply has the version's layout all the same."""
    if api == ApiKey.PRODUCE:
        return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[])
    if api == ApiKey.API_VERSIONS:
        return NAMED
    request, _response = declared()[api]
    return request()


def test_every_offered_version_is_answered_in_its_own_layout(raw: RawClient) -> None:
    messages = declared()
    for api, (first, last) in offered(raw).items():
        request, response = messages[api]
        for version in range(max(first, request.VERSIONS.first), last + 1):
            where = f"{ApiKey(api).name} v{version}"
            raw.send(default_request(api), version)
            try:
                frame = memoryview(raw.receive_frame())
            except (ConnectionEnded, TimeoutError) as error:
                pytest.fail(f"{where} got no answer: {error!r}")
            body = response_body(response, frame, version)
            reply = decode(response, frame, version, body)
            assert to_bytes(reply, version) == bytes(frame[body:]), f"{where} holds bytes beyond its layout"


def test_whoever_looks_for_a_groups_coordinator_is_sent_to_the_leader_of_its_partition(
    raw: RawClient, broker: BrokerProcess
) -> None:
    one = raw.call(FindCoordinatorRequest(key="mine", key_type=GROUP), 3, FindCoordinatorResponse)
    assert (one.error_code, one.node_id, one.port) == (0, 0, broker.port)
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=GROUP)
    many = raw.call(request, 4, FindCoordinatorResponse).coordinators
    assert [(each.key, each.error_code, each.port) for each in many] == [("a", 0, broker.port), ("b", 0, broker.port)]


def test_whoever_looks_for_a_transactions_coordinator_finds_this_broker(raw: RawClient, broker: BrokerProcess) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=TRANSACTION)
    (found,) = raw.call(request, 4, FindCoordinatorResponse).coordinators
    assert (found.error_code, found.port) == (ErrorCode.NONE, broker.port)


def test_a_key_of_a_kind_that_nobody_knows_is_refused(raw: RawClient) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=7)
    (found,) = raw.call(request, 4, FindCoordinatorResponse).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
